"""The topic settings that control its segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic


class SegmentLimits(Protocol):
    """The limits for retention and for rolling segments."""

    @property
    def segment_bytes(self) -> int:
        """The maximum size of a segment."""

    @property
    def segment_ms(self) -> int:
        """The maximum time between the first and any later batch of a segment."""

    @property
    def retention_ms(self) -> int:
        """How long records are kept; -1: forever."""

    @property
    def retention_bytes(self) -> int:
        """How many bytes of a partition are kept; -1: all."""

    @property
    def is_deleted(self) -> bool:
        """Whether old records are deleted at all (cleanup.policy)."""

    @property
    def file_delete_delay_ms(self) -> int:
        """How long a renamed segment is kept before it is deleted."""


LimitsOf = Callable[[State, Topic], SegmentLimits]
