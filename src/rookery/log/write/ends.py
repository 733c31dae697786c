"""Transaction ends that no object of their broker records yet.

A marker has no bytes until it is rewritten, and the offsets of a group are in no object at all.
Until a snapshot contains them, only the cluster log has them. The broker that ended a transaction
therefore writes the end into its next object, together with the offsets of its earlier objects.
`rookery recover` reads it there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from rookery.cluster.state.groups import unpack
from rookery.cluster.state.outcome import EndedTransaction
from rookery.formats.manifest import EndMarker, EndOffset, TransactionEnd

log = logging.getLogger(__name__)

# The most that one object records, unless a single end is larger. A manifest may have 64 MiB.
_TOLD_BYTES: Final = 4 * 1024 * 1024
# The most that is kept while the store cannot be reached. The next snapshot contains dropped ends.
KEPT_BYTES: Final = 32 * 1024 * 1024
_ROW_BYTES: Final = 64

TopicNumber = Callable[[bytes], int]
"""Returns the index of a topic in a manifest's list."""


class UnrecordedEnd(NamedTuple):
    """A transaction's end and the entry that contains it."""

    entry: int
    ended: EndedTransaction

    @property
    def size(self) -> int:
        """The approximate number of bytes it takes in a manifest."""
        packed = (offset for many in self.ended.offsets.values() for offset in many.values())
        offsets = sum(
            len(group_id) * len(many) for group_id, many in self.ended.offsets.items()
        ) + sum(_ROW_BYTES + len(offset) for offset in packed)
        return _ROW_BYTES * (1 + len(self.ended.markers)) + offsets

    def message(self, number_of: TopicNumber) -> TransactionEnd:
        """Return it as a manifest message."""
        ended = self.ended
        return TransactionEnd(
            entry=self.entry,
            producer_id=ended.producer_id,
            producer_epoch=ended.epoch,
            is_commit=ended.is_commit,
            markers=[
                EndMarker(
                    topic=number_of(marker.topic_id),
                    partition=marker.partition,
                    first_offset=marker.first_offset,
                    offset=marker.offset,
                    last_sequence=marker.last_sequence,
                    time_ms=marker.time_ms,
                    is_append_time=marker.is_append_time,
                )
                for marker in ended.markers
            ],
            offsets=[
                _offset(group_id, number_of(topic_id), partition, packed)
                for group_id, offsets in ended.offsets.items()
                for (topic_id, partition), packed in offsets.items()
            ],
        )


class TransactionEnds:
    """The unrecorded ends of one broker, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[UnrecordedEnd] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, entry: int, ended: EndedTransaction) -> None:
        """Add an end; the oldest ends are dropped if there are too many."""
        if ended.markers or ended.offsets:
            self._waiting.append(UnrecordedEnd(entry, ended))
            self._size += self._waiting[-1].size
            self._drop()

    def take(self) -> list[UnrecordedEnd]:
        """Take as many ends as one object records."""
        taken: list[UnrecordedEnd] = []
        size = 0
        while self._waiting and (not taken or size + self._waiting[0].size <= _TOLD_BYTES):
            taken.append(self._waiting.popleft())
            size += taken[-1].size
        self._size -= size
        return taken

    def give_back(self, taken: list[UnrecordedEnd]) -> None:
        """Put back ends that were taken, because the object was not written."""
        self._waiting.extendleft(reversed(taken))
        self._size += sum(end.size for end in taken)
        self._drop()

    def _drop(self) -> None:
        while self._size > KEPT_BYTES:
            dropped = self._waiting.popleft()
            self._size -= dropped.size
            log.warning(
                "the end of a transaction of producer %d (entry %d) is in no object: "
                "until the next snapshot it is known to the cluster log alone",
                dropped.ended.producer_id,
                dropped.entry,
            )


def _offset(group_id: str, topic: int, partition: int, packed: bytes) -> EndOffset:
    known = unpack(packed)
    return EndOffset(
        group_id=group_id,
        topic=topic,
        partition=partition,
        offset=known.offset,
        leader_epoch=known.leader_epoch,
        commit_ms=known.commit_ms,
        retention_ms=known.retention_ms,
        metadata=known.metadata,
    )
