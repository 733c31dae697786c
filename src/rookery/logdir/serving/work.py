"""What is gathered of one entry before it becomes a job."""

from __future__ import annotations

from collections.abc import Callable

from rookery.logdir.serving.job import Key
from rookery.logdir.writing.segmentfile import NewBatch
from rookery.records.record import Record
from rookery.wire.message import Message


class Work:
    """What is gathered of one entry."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[Message] = []
        """For the metadata log."""
        self.before: list[Callable[[], None]] = []
        """What is done when these are written."""
        self.touched: dict[str, None] = {}
        """Transactional ids of which something may have changed."""
        self.decided: list[tuple[str, Record]] = []
        """What is said of them before anything of theirs is written."""
        self.batches: dict[Key, list[NewBatch]] = {}
        self.ended: list[tuple[str, Record]] = []
        """What is said of them when all of it is written."""
        self.later: list[Callable[[], None]] = []
        """What is done when the entry counts."""
        self.moves_starts = False
        """Whether a log begins elsewhere from now on."""
        self._next: dict[Key, int] = {}

    def add(self, key: Key, batch: NewBatch) -> None:
        """Have a batch written."""
        self.batches.setdefault(key, []).append(batch)
        self.took(key, batch.header.last_offset + 1)

    def took(self, key: Key, end: int) -> None:
        """Learn that offsets below one are taken."""
        self._next[key] = max(self._next.get(key, 0), end)

    def next_offset(self, key: Key, end: int) -> int:
        """Return the next offset of one of Kafka's own partitions."""
        return max(self._next.get(key, 0), end)
