"""Transactions of a log that was lost: what batches and markers still tell of them.

How a transaction ended stands in the cluster log until its markers are rewritten, so some ends are
lost with it. Such transactions are aborted: half of one must not be read as if it were whole. All
transactional ids are forgotten, since epochs were given out that nobody knows of; producers begin
anew, with other ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from rookery.cluster.state import aborted, producers
from rookery.cluster.state.aborted import AbortedTransaction
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.cluster.state.txns import Transactions
from rookery.log.fsck.fault import Fault, Kind, Where
from rookery.model.control import ControlRecordType
from rookery.records import record as records
from rookery.records.batch import BatchHeader
from rookery.records.kernel import Buffer


def note(partition: Partition, data: Buffer, header: BatchHeader, base: int) -> None:
    """Take note of a batch: it may open a transaction, or end one."""
    if not header.is_transactional:
        return
    if not header.is_control:
        partition.ongoing.setdefault(header.producer_id, base)
        return
    first = partition.ongoing.pop(header.producer_id, None)
    if first is not None and _is_abort(data, header):
        stable = next(iter(partition.ongoing.values()), base + 1)
        one = AbortedTransaction(header.producer_id, first, base, stable)
        aborted.add(partition.aborted, one)


def abort_open(state: State, now_ms: int) -> list[Fault]:
    """Abort what is open in a rebuilt state; return what is to be said about it."""
    state.transactions = Transactions()
    return [
        fault
        for topic in state.topics
        for partition in topic.partitions
        for fault in _abort(topic, partition, now_ms)
    ]


def _abort(topic: Topic, partition: Partition, now_ms: int) -> Iterator[Fault]:
    end = partition.next_offset
    for producer_id, first in list(partition.ongoing.items()):
        window = partition.producers.get(producer_id)
        epoch = producers.describe(window).epoch if window is not None else 0
        offset = partition.mark(
            producer_id, epoch, now_ms, is_commit=False, is_append_time=topic.is_append_time
        )
        del partition.ongoing[producer_id]
        one = AbortedTransaction(producer_id, first, offset, partition.last_stable_offset)
        aborted.add(partition.aborted, one)
        yield Fault(
            Kind.LOST,
            f"{topic.name}-{partition.index}",
            f"how the transaction of producer {producer_id} ended is not known: it is aborted",
            Where(topic.name, partition.index, max(first, partition.log_start), end),
        )


def _is_abort(data: Buffer, header: BatchHeader) -> bool:
    [record] = records.read(data, header)
    return records.control(record).type is ControlRecordType.ABORT
