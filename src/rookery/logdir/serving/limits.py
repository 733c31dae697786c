"""The settings of a topic that decide about its segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic


class SegmentLimits(Protocol):
    """What is done to old segments, and when a new one begins."""

    @property
    def segment_bytes(self) -> int:
        """So large a segment becomes at most."""

    @property
    def segment_ms(self) -> int:
        """So much later than its first batch none of its batches may be."""

    @property
    def retention_ms(self) -> int:
        """How long records are kept; -1 is for ever."""

    @property
    def retention_bytes(self) -> int:
        """How much of a partition is kept; -1 is all."""

    @property
    def is_deleted(self) -> bool:
        """Whether old records are deleted at all (cleanup.policy)."""

    @property
    def file_delete_delay_ms(self) -> int:
        """How long a renamed segment stays before it is deleted."""


LimitsOf = Callable[[State, Topic], SegmentLimits]
