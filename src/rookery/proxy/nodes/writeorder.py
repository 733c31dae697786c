"""Keeps one client's writes to a partition in order while its leader moves.

A client may have several batches of a partition in flight. With brokers as nodes, all of them reach
the broker that the client has chosen, so a broker that has lost the partition refuses all of them.
Here the proxy chooses, for one batch after the other. Three rules keep what the client relies on:

- While a batch is in flight, later ones go to the same connection.
- After a batch was refused because the leader had moved, or was lost with its connection, nothing
  is sent until no batch is in flight. Otherwise a busy client would stay with the old leader.
- After that happened to a batch of an idempotent producer, later ones are refused until that batch
  comes again. Otherwise a new leader that does not know the producer would take a later batch for
  its first: Kafka checks a sequence only against what it knows. The repeated batch would then
  stay out of order forever.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from rookery.errors import Error, ErrorCode
from rookery.records.batches import parse
from rookery.wire.buffer import Buffer

B = TypeVar("B", bound=Hashable)

_SEQUENCES: Final = 2**31

MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors after which the leader is asked for again."""


class BatchStart(NamedTuple):
    """The producer of a batch, and the sequence that it begins with."""

    producer_id: int
    epoch: int
    sequence: int

    def follows(self, earlier: BatchStart) -> bool:
        """Return whether this batch comes after another one of the same producer."""
        if self[:2] != earlier[:2]:
            return False
        return 0 < (self.sequence - earlier.sequence) % _SEQUENCES < _SEQUENCES // 2


def read_start(records: Buffer | tuple[Buffer, ...] | None) -> BatchStart | None:
    """Return the start of an idempotent batch; None for records without a producer id."""
    if records is None or isinstance(records, tuple):
        return None
    try:
        header = parse(records)
    except Error:
        return None
    if not header.has_producer_id:
        return None
    return BatchStart(header.producer_id, header.producer_epoch, header.base_sequence)


class PartitionWrites(Generic[B]):
    """The writes of one client to one partition."""

    __slots__ = ("backend", "in_flight", "is_draining", "lost")

    def __init__(self, backend: B) -> None:
        self.backend = backend
        self.in_flight = 0
        self.is_draining = False
        """Whether new batches wait for those in flight, because one was refused or lost."""
        self.lost: BatchStart | None = None
        """The first batch that was refused or lost, and was not repeated yet."""


class WriteOrder(Generic[B]):
    """The partitions to which a client writes; `B` is a connection to a broker."""

    def __init__(self) -> None:
        self._writes: dict[Hashable, PartitionWrites[B]] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def find_pinned(self, partition: Hashable) -> B | None:
        """Return the connection that the next batch must take; None if any will do."""
        writes = self._writes.get(partition)
        return writes.backend if writes is not None and writes.in_flight else None

    def admits(self, partition: Hashable, start: BatchStart | None) -> bool:
        """Return whether a batch may be sent now; if not, the client must repeat an earlier one."""
        writes = self._writes.get(partition)
        if writes is None:
            return True
        if writes.is_draining:
            return False
        return writes.lost is None or start is None or not start.follows(writes.lost)

    def note_sent(self, partition: Hashable, start: BatchStart | None, backend: B) -> None:
        """Record that a batch was sent."""
        writes = self._writes.get(partition)
        if writes is None:
            writes = self._writes[partition] = PartitionWrites(backend)
        writes.backend = backend
        writes.in_flight += 1
        if start is not None and writes.lost is not None and not start.follows(writes.lost):
            writes.lost = None

    def note_refused(self, partition: Hashable, start: BatchStart | None, backend: B) -> None:
        """Record that a batch was refused here, before it was sent."""
        writes = self._writes.get(partition)
        if writes is None:
            if start is None:
                return
            writes = self._writes[partition] = PartitionWrites(backend)
        self._lose(writes, start)

    def note_ended(self, partition: Hashable, start: BatchStart | None, *, is_lost: bool) -> None:
        """Record the end of a batch that was sent.

        Args:
            partition: the partition of the batch.
            start: the start of the batch.
            is_lost: whether its leader had moved, or its connection broke.
        """
        writes = self._writes[partition]
        writes.in_flight -= 1
        if is_lost:
            self._lose(writes, start)
        writes.is_draining = writes.in_flight > 0 and (is_lost or writes.is_draining)
        if not writes.in_flight and writes.lost is None:
            del self._writes[partition]

    def _lose(self, writes: PartitionWrites[B], start: BatchStart | None) -> None:
        if start is not None and (writes.lost is None or not start.follows(writes.lost)):
            writes.lost = start
