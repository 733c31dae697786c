"""Recovers transactions of a lost log from batches, markers and the records of brokers.

A transaction without a recorded end is aborted. So is a transaction that lost some of its records:
a partial transaction must not be read as complete, and a copier whose offsets were not committed
copies again. All transactional ids are dropped, because epochs were issued that are not recorded
anywhere. Producers start again with new ids.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from rookery.cluster.state import aborts, producers
from rookery.cluster.state.aborts import AbortedTransaction
from rookery.cluster.state.partition import Partition, Row, RowKind
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.cluster.state.txns import Transactions
from rookery.formats.manifest import EndMarker
from rookery.log.check.fault import FaultKind, FaultRange, LogFault
from rookery.log.recover.ends import Key, RecordedEnd, move_offsets
from rookery.model.control import ControlRecordType
from rookery.records import recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer

# Stands for a sequence that nothing can follow: records are missing.
_TORN: Final = -1
_SEQUENCES: Final = 2**31


class _Span(NamedTuple):
    """A transaction in a partition, from its first record to its marker."""

    ended: AbortedTransaction
    is_abort: bool


class Spans:
    """The transactions of one partition; rows and batches arrive in the order of offsets."""

    def __init__(self, partition: Partition, recorded: dict[int, EndMarker]) -> None:
        """Start with the open transactions.

        Args:
            partition: the partition to update.
            recorded: the markers that brokers have recorded, by offset.
        """
        self.torn: set[int] = set()
        """Recorded markers whose transactions have lost some records."""
        self._partition = partition
        self._recorded = recorded
        self._spans: list[_Span] = []
        self._lost: list[Row] = []
        # Open transactions that may have had records in lost offsets, by producer. The value is the
        # sequence that comes next if they had none.
        self._suspects: dict[int, int] = {}

    def miss(self, row: Row, *, is_known: bool) -> None:
        """Record lost offsets; for those that the snapshot knew, sequences prove nothing."""
        self._lost.append(row)
        for producer_id, first in self._partition.ongoing.items():
            if first < row.end_offset:
                following = _TORN if is_known else _next(self._last(producer_id))
                self._suspects.setdefault(producer_id, following)

    def batch(self, data: Buffer, header: BatchHeader, base: int) -> None:
        """Record a batch: it may open, continue or end a transaction."""
        producer_id = header.producer_id
        if not header.is_transactional:
            return
        if header.is_control:
            self._end(producer_id, base, is_abort=_is_abort(data, header))
            return
        self._partition.ongoing.setdefault(producer_id, base)
        if producer_id in self._suspects:
            if self._suspects[producer_id] == header.base_sequence:
                del self._suspects[producer_id]
            else:
                self._suspects[producer_id] = _TORN

    def marker(self, row: Row) -> None:
        """Record a marker that a broker has recorded."""
        producer_id, _ = row.producer
        marker = self._recorded.get(row.base_offset)
        if marker is not None and not self._is_whole(producer_id, marker):
            self.torn.add(row.base_offset)
        self._end(producer_id, row.base_offset, is_abort=not row.kind & RowKind.COMMIT)

    def close(self, to_abort: set[int]) -> None:
        """List aborted transactions; commits with markers in `to_abort` become aborts."""
        turned = {offset for offset in to_abort if self._turn(offset)}
        for ended, is_abort in self._spans:
            if is_abort or ended.last_offset in turned:
                aborts.add(self._partition.aborted, ended)

    def _turn(self, offset: int) -> bool:
        """Turn a marker into an abort; a marker that was rewritten is not changed."""
        partition = self._partition
        index = partition.row_of(offset)
        if partition.base_offsets[index] != offset or not partition.kinds[index] & RowKind.MARKER:
            return False
        partition.kinds[index] &= ~RowKind.COMMIT
        return True

    def _is_whole(self, producer_id: int, marker: EndMarker) -> bool:
        """Whether all records exist, from the first to the one with the last sequence."""
        first = self._partition.ongoing.get(producer_id, marker.offset)
        if self._has_lost(marker.first_offset, first):
            return False
        following = _next(marker.last_sequence)
        return self._suspects.get(producer_id, following) == following

    def _has_lost(self, begin: int, end: int) -> bool:
        index = bisect_left(self._lost, end, key=lambda row: row.base_offset) - 1
        return index >= 0 and self._lost[index].end_offset > begin

    def _end(self, producer_id: int, offset: int, *, is_abort: bool) -> None:
        self._suspects.pop(producer_id, None)
        first = self._partition.ongoing.pop(producer_id, None)
        if first is not None:
            stable = next(iter(self._partition.ongoing.values()), offset + 1)
            transaction = AbortedTransaction(producer_id, first, offset, stable)
            self._spans.append(_Span(transaction, is_abort))

    def _last(self, producer_id: int) -> int:
        window = self._partition.producers.get(producer_id)
        return producers.describe(window).last_sequence if window is not None else -1


def settle(state: State, ends: list[RecordedEnd], spans: dict[Key, Spans]) -> list[LogFault]:
    """Apply the transaction ends recorded by brokers; return those torn by lost records."""
    whole: list[RecordedEnd] = []
    torn: list[RecordedEnd] = []
    for recorded in ends:
        is_torn = recorded.end.is_commit and any(
            key in spans and marker.offset in spans[key].torn for key, marker in recorded.markers
        )
        (torn if is_torn else whole).append(recorded)
    to_abort: dict[Key, set[int]] = defaultdict(set)
    for recorded in torn:
        for key, marker in recorded.markers:
            to_abort[key].add(marker.offset)
    for key, partition_spans in spans.items():
        partition_spans.close(to_abort[key])
    move_offsets(state, whole)
    return [fault for recorded in torn for fault in _report_torn(state, recorded)]


def _report_torn(state: State, recorded: RecordedEnd) -> Iterator[LogFault]:
    for (topic_id, index), marker in recorded.markers:
        topic = state.topics.by_id.get(topic_id)
        if topic is not None:
            yield LogFault(
                FaultKind.LOST,
                f"{topic.name}-{index}",
                f"a transaction of producer {recorded.end.producer_id} was committed, but some of "
                "its records are lost: it is aborted",
                FaultRange(topic.name, index, marker.first_offset, marker.offset + 1),
            )


def abort_open(state: State, now_ms: int) -> list[LogFault]:
    """Abort open transactions in a rebuilt state; return faults that describe them."""
    state.transactions = Transactions()
    return [
        fault
        for topic in state.topics
        for partition in topic.partitions
        for fault in _abort(topic, partition, now_ms)
    ]


def _abort(topic: Topic, partition: Partition, now_ms: int) -> Iterator[LogFault]:
    end = partition.next_offset
    for producer_id, first in list(partition.ongoing.items()):
        window = partition.producers.get(producer_id)
        epoch = producers.describe(window).epoch if window is not None else 0
        offset = partition.mark(
            producer_id, epoch, now_ms, is_commit=False, is_append_time=topic.is_append_time
        )
        del partition.ongoing[producer_id]
        aborted = AbortedTransaction(producer_id, first, offset, partition.last_stable_offset)
        aborts.add(partition.aborted, aborted)
        yield LogFault(
            FaultKind.LOST,
            f"{topic.name}-{partition.index}",
            f"how the transaction of producer {producer_id} ended is not known: it is aborted",
            FaultRange(topic.name, partition.index, max(first, partition.log_start), end),
        )


def _next(sequence: int) -> int:
    return (sequence + 1) % _SEQUENCES


def _is_abort(data: Buffer, header: BatchHeader) -> bool:
    [record] = recordcodec.read(data, header)
    return recordcodec.control(record).type is ControlRecordType.ABORT
