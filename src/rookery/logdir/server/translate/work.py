"""Collects the writes of one entry before they become a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rookery.logdir.server.translate.job import Key
from rookery.logdir.writer.segmentfile import NewBatch
from rookery.records.recordcodec import Record
from rookery.wire.message import Message

EventWriters = Mapping[type[Message], Callable[..., None]]
"""For each type of event, the function that adds its writes to a `Work`. It is called with the
work, the event and its outcome."""


class Work:
    """The writes of one entry."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[Message] = []
        """Records for the metadata log."""
        self.before: list[Callable[[], None]] = []
        """Steps to run after these records are written."""
        self.touched: dict[str, None] = {}
        """Transactional ids that may have changed."""
        self.decided: list[tuple[str, Record]] = []
        """Their records that precede all other writes."""
        self.batches: dict[Key, list[NewBatch]] = {}
        self.ended: list[tuple[str, Record]] = []
        """Their records that follow all other writes."""
        self.later: list[Callable[[], None]] = []
        """Work to do after the entry is applied."""
        self.moves_starts = False
        """Whether a log start moves."""
        self._next: dict[Key, int] = {}

    def add(self, key: Key, batch: NewBatch) -> None:
        """Add a batch to write."""
        self.batches.setdefault(key, []).append(batch)
        self.took(key, batch.header.last_offset + 1)

    def took(self, key: Key, end: int) -> None:
        """Record that offsets below `end` are taken."""
        self._next[key] = max(self._next.get(key, 0), end)

    def next_offset(self, key: Key, end: int) -> int:
        """Return the next offset of an internal partition."""
        return max(self._next.get(key, 0), end)
