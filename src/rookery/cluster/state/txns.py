"""Transactional ids: the producer of each, and its open transaction.

    Empty ──► Ongoing ──► CompleteCommit, CompleteAbort ──► Ongoing …
                 └──────► CompleteAbort, in the next epoch: its producer is fenced, or was too slow

Kafka's states between Ongoing and Complete do not exist here: the end of a transaction, its
markers in all partitions and its offsets are one event.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

LAST_EPOCH: Final = 2**15 - 2
"""The highest epoch that a producer gets; the next one is reserved for fencing it."""

Place = tuple[bytes, int]
"""Topic id and partition."""


class TransactionState(IntEnum):
    """Kafka's state numbers; `words` returns Kafka's names."""

    EMPTY = 0
    ONGOING = 1
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def words(self) -> str:
        """The state's name in Kafka's spelling."""
        return self.name.title().replace("_", "")


class TransactionOwner(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NOBODY: Final = TransactionOwner(-1, -1)


class Transaction:
    """One transactional id."""

    __slots__ = (
        "changed", "changed_ms", "groups", "id", "last", "partitions", "started", "started_ms",
        "state", "timeout_ms", "writer",
    )  # fmt: skip

    def __init__(self, transactional_id: str, writer: TransactionOwner, timeout_ms: int) -> None:
        self.id = transactional_id
        self.writer = writer
        """The only producer that may write under this id."""
        self.last = NOBODY
        """The previous writer, if it may retry because a response was lost."""
        self.timeout_ms = timeout_ms
        self.state = TransactionState.EMPTY
        self.partitions: dict[Place, None] = {}
        self.groups: dict[str, dict[Place, bytes]] = {}
        """Packed offsets by group, which take effect when the transaction is committed."""
        self.started = 0
        """The entry that started the open transaction; 0 if none is open."""
        self.started_ms = -1
        """When the last transaction started; -1 if its producer has started none."""
        self.changed = 0
        """The last entry that changed any of this."""
        self.changed_ms = -1

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self.state is TransactionState.ONGOING


class Transactions:
    """All transactional ids of the cluster."""

    __slots__ = ("by_group", "by_id", "by_producer", "open")

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        self.by_producer: dict[int, Transaction] = {}
        """By the current producer id of each."""
        self.open: dict[str, Transaction] = {}
        """Those with an open transaction."""
        self.by_group: dict[str, dict[str, None]] = {}
        """The ids of the open transactions that include a group's offsets."""

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.by_id.values())

    def add(self, transaction: Transaction) -> None:
        """Add an id, with its open transaction."""
        self.by_id[transaction.id] = transaction
        self.by_producer[transaction.writer.producer_id] = transaction
        if transaction.is_open:
            self.open[transaction.id] = transaction
        for group_id in transaction.groups:
            self.by_group.setdefault(group_id, {})[transaction.id] = None

    def remove(self, transaction: Transaction) -> None:
        """Remove an id that has no open transaction."""
        del self.by_id[transaction.id]
        del self.by_producer[transaction.writer.producer_id]

    def hand_to(self, transaction: Transaction, writer: TransactionOwner) -> None:
        """Make another producer id or epoch the current writer."""
        del self.by_producer[transaction.writer.producer_id]
        transaction.writer = writer
        self.by_producer[writer.producer_id] = transaction

    def begin(self, transaction: Transaction, number: int, stamp_ms: int) -> None:
        """Open a transaction, if none is open."""
        if not transaction.is_open:
            transaction.state = TransactionState.ONGOING
            transaction.started = transaction.changed = number
            transaction.started_ms = transaction.changed_ms = stamp_ms
            self.open[transaction.id] = transaction

    def join(self, transaction: Transaction, group_id: str) -> None:
        """Add a group to an open transaction."""
        transaction.groups.setdefault(group_id, {})
        self.by_group.setdefault(group_id, {})[transaction.id] = None

    def close(self, transaction: Transaction, state: TransactionState) -> None:
        """Close the open transaction."""
        for group_id in transaction.groups:
            others = self.by_group[group_id]
            del others[transaction.id]
            if not others:
                del self.by_group[group_id]
        del self.open[transaction.id]
        transaction.state = state
        transaction.partitions, transaction.groups = {}, {}
        transaction.started = 0

    def holds(self, group_id: str, topic_id: bytes, partition: int) -> bool:
        """Whether an open transaction may change a group's offset in a partition."""
        return any(
            (topic_id, partition) in self.by_id[transactional_id].groups[group_id]
            for transactional_id in self.by_group.get(group_id, ())
        )
