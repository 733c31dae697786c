"""Transactions that ended after the newest snapshot survive the loss of the cluster log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.cluster.events.brokerevents import BrokerRegistered
from rookery.cluster.events.txnevents import TransactionExpired
from rookery.cluster.state import aborts
from rookery.cluster.state.groups import GroupOffset
from rookery.cluster.state.partition import Row, RowKind
from rookery.cluster.state.state import State
from rookery.formats.manifest import read_head
from rookery.log.check.check import check
from rookery.log.check.fault import FaultKind, LogFault
from rookery.log.maintain import snapshots
from rookery.log.recover.recover import RecoveryPlan, carry_out, plan
from tests.log.site import TOPIC, Site, Writer, batch, rows
from tests.log.transacting import Transactor


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.close()


@pytest.fixture
async def writer(site: Site) -> Writer:
    """A broker with two partitions, and a snapshot that knows them and nothing else."""
    await site.begin(2)
    replica = await site.open()
    registration = BrokerRegistered(process_id=bytes(16), node_id=1, host="h", port=1)
    broker = Writer(site, replica, await replica.register(registration))
    await snapshots.save(site.store, replica.state)
    return broker


async def recover(site: Site) -> tuple[State, RecoveryPlan]:
    """Lose the cluster log and rebuild it; what comes out must be sound."""
    await site.lose_log()
    made = await plan(site.sources, site.clock)
    await carry_out(site.sources, made, keep_unplaced=True)
    faults = [fault.kind for fault in (await check(site.sources)).faults]
    assert faults == [FaultKind.ORPHANED] * len(made.unplaced)
    return (await site.open()).state, made


def partition_rows(state: State, partition: int = 0) -> list[Row]:
    return rows(state.topics.by_id[TOPIC].partitions[partition])


def skipped(state: State, partition: int = 0) -> list[tuple[int, int]]:
    """Return first offset and marker of what a reader of committed records skips."""
    owner = state.topics.by_id[TOPIC].partitions[partition]
    return [transaction[1:3] for transaction in aborts.within(owner.aborted, 0, owner.next_offset)]


def told(faults: list[LogFault]) -> list[tuple[int, int, str]]:
    """Return partition, first offset and words of each fault."""
    return [
        (fault.where.partition, fault.where.base_offset, fault.text.rpartition(": ")[2])
        for fault in faults
        if fault.where is not None
    ]


async def test_outcomes_of_transactions_are_recovered(site: Site, writer: Writer) -> None:
    producer = await Transactor(writer, "x").init()
    for commit in (True, False, True):
        await producer.write(b"a", b"1")
        await producer.write(b"b", b"2", partition=1)
        await producer.end(commit=commit)
    await writer.uploads.flush_notes()
    before = [partition_rows(writer.replica.state, index) for index in (0, 1)]

    state, made = await recover(site)

    assert made.faults == []
    assert made.rebuilt.lost == []
    assert [partition_rows(state, index) for index in (0, 1)] == before
    assert [skipped(state, index) for index in (0, 1)] == [[(2, 3)], [(2, 3)]]
    assert state.topics.by_id[TOPIC].partitions[0].last_stable_offset == 6


async def test_next_object_of_a_busy_broker_records_transaction_ends(
    site: Site, writer: Writer
) -> None:
    producer = await Transactor(writer, "x").init()
    await producer.write(b"a", b"1")
    await producer.end(commit=True)
    await writer.write(batch(1))

    state, made = await recover(site)

    assert made.faults == []
    assert [bool(row.kind & RowKind.COMMIT) for row in partition_rows(state)] == [False, True]


async def test_broker_without_flushes_records_transaction_ends_after_a_delay(
    site: Site, writer: Writer
) -> None:
    other = await site.writer()
    producer = await Transactor(writer, "x").init()
    for _ in range(8):
        await producer.write(b"a", b"1", by=other)
        await producer.end(commit=True)
        # Never quiet for long, and without an object of its own.
        site.clock.advance(1000)
        await writer.uploads.maintain()
    await other.uploads.flush_notes()

    state, made = await recover(site)

    ends = [bool(row.kind & RowKind.COMMIT) for row in partition_rows(state) if row.is_marker]
    assert ends[:5] == [True] * 5
    assert len(made.faults) < 4


async def told_by(site: Site, writer: Writer) -> list[int]:
    """Return the entries of the ends that an incarnation's objects record."""
    entries = []
    for item in await site.store.list(f"_rookery/objects/{writer.incarnation:016x}/"):
        manifest, _ = read_head(await site.store.read(item.key))
        entries += [end.entry for end in manifest.ends]
    return entries


async def test_each_incarnation_records_its_own_ends_only_while_it_is_alive(
    site: Site, writer: Writer
) -> None:
    other = await site.writer()
    producer = await Transactor(writer, "x").init()
    await producer.write(b"a", b"1", by=other)
    await producer.end(commit=True)
    entry = writer.replica.state.applied
    for _ in range(2):
        await writer.uploads.close()
    await producer.write(b"a", b"2", by=other)
    await producer.end(commit=True)
    await other.replica.barrier()
    await writer.uploads.flush_notes()
    await other.uploads.flush_notes()
    assert await told_by(site, writer) == [entry]
    assert await told_by(site, other) == []


async def test_group_offsets_are_recovered_with_their_transactions(
    site: Site, writer: Writer
) -> None:
    producer = await Transactor(writer, "x").init()
    for offset, commit in ((5, True), (7, True), (9, False)):
        await producer.write(b"a", b"1")
        await producer.read_up_to("copiers", offset)
        await producer.end(commit=commit)
    await writer.uploads.flush_notes()
    before = writer.replica.state.groups.by_id["copiers"].offset(TOPIC, 0)

    state, made = await recover(site)

    assert made.faults == []
    committed = state.groups.by_id["copiers"].offset(TOPIC, 0)
    assert isinstance(committed, GroupOffset)
    assert committed == before
    assert (committed.offset, committed.leader_epoch, committed.metadata) == (7, 3, "m")


async def test_offsets_in_the_snapshot_do_not_decrease(site: Site, writer: Writer) -> None:
    producer = await Transactor(writer, "x").init()
    await producer.read_up_to("copiers", 5)
    await producer.end(commit=True)
    await writer.uploads.flush_notes()
    writer.replica.state.groups.by_id["copiers"].forget(TOPIC, 0)
    await snapshots.save(site.store, writer.replica.state)

    state, _ = await recover(site)

    assert state.groups.by_id["copiers"].offset(TOPIC, 0) is None


async def test_unrecorded_end_is_an_abort_and_is_reported(site: Site, writer: Writer) -> None:
    producer = await Transactor(writer, "x").init()
    await producer.write(b"a", b"1")
    await producer.read_up_to("copiers", 5)
    await writer.uploads.flush_notes()
    await producer.end(commit=True)

    state, made = await recover(site)

    assert told(made.faults) == [(0, 0, "it is aborted")]
    assert skipped(state) == [(0, 1)]
    assert state.groups.by_id.get("copiers") is None


async def test_transaction_with_lost_records_is_aborted_in_all_partitions(
    site: Site, writer: Writer
) -> None:
    """Also where they are all there: half of it must not be read as if it were whole."""
    producer = await Transactor(writer, "x").init()
    await producer.write(b"a", b"1")
    await producer.write(b"a", b"in the entry", to_object=False)
    await producer.write(b"b", b"2", partition=1)
    await producer.read_up_to("copiers", 5)
    await producer.end(commit=True)
    await writer.uploads.flush_notes()

    state, made = await recover(site)

    assert told(made.faults) == [(0, 0, "it is aborted"), (1, 0, "it is aborted")]
    assert [skipped(state, index) for index in (0, 1)] == [[(0, 2)], [(0, 1)]]
    assert not any(
        row.kind & RowKind.COMMIT for index in (0, 1) for row in partition_rows(state, index)
    )
    assert state.groups.by_id.get("copiers") is None


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_any_lost_record_is_detected(site: Site, writer: Writer, lost: int) -> None:
    producer = await Transactor(writer, "x").init()
    for number in range(3):
        await producer.write(b"a", b"1", to_object=number != lost)
    await producer.end(commit=True)
    await writer.uploads.flush_notes()

    state, made = await recover(site)

    assert told(made.faults) == [(0, 0, "it is aborted")]
    assert not any(row.kind & RowKind.COMMIT for row in partition_rows(state))


@pytest.mark.parametrize("after", [0, 1, 2, 3])
async def test_lost_records_of_other_producers_do_not_abort_a_transaction(
    site: Site, writer: Writer, after: int
) -> None:
    producer = await Transactor(writer, "x").init()
    for number in range(3):
        if number == after:
            await writer.send(batch(0))
        await producer.write(b"a", b"1")
    if after == 3:
        await writer.send(batch(0))
    await producer.end(commit=True)
    await writer.uploads.flush_notes()

    state, made = await recover(site)

    assert made.faults == []
    assert [tuple(lost)[1:] for lost in made.rebuilt.lost] == [(0, after, after + 1)]
    assert partition_rows(state)[-1].kind & RowKind.COMMIT


async def test_transaction_that_started_before_the_snapshot_is_recovered(
    site: Site, writer: Writer
) -> None:
    producer = await Transactor(writer, "x").init()
    await producer.write(b"a", b"1")
    await snapshots.save(site.store, writer.replica.state)
    await producer.write(b"a", b"2")
    await producer.end(commit=True)
    await writer.uploads.flush_notes()

    state, made = await recover(site)

    assert made.faults == []
    assert partition_rows(state)[-1].kind & RowKind.COMMIT
    assert not state.topics.by_id[TOPIC].partitions[0].ongoing


async def test_markers_rewritten_after_the_snapshot_are_not_duplicated(
    site: Site, writer: Writer
) -> None:
    producer = await Transactor(writer, "x").init()
    for commit in (True, False):
        await producer.write(b"a", b"1")
        await producer.end(commit=commit)
    await writer.uploads.flush_notes()
    await site.merge(writer, 0)
    await producer.write(b"a", b"3")
    await producer.end(commit=True)
    await writer.uploads.flush_notes()

    state, made = await recover(site)

    assert made.faults == []
    kinds = [(row.is_final, row.is_marker) for row in partition_rows(state)]
    assert kinds == [(True, False), (False, False), (False, True)]
    assert skipped(state) == [(2, 3)]


async def test_expired_transactions_are_recovered(site: Site, writer: Writer) -> None:
    producer = await Transactor(writer, "x").init()
    await producer.write(b"a", b"1")
    started = writer.replica.state.transactions.by_id["x"].started
    event = TransactionExpired(transactional_id="x", started=started)
    await writer.replica.propose([event])
    await writer.uploads.flush_notes()

    state, made = await recover(site)

    assert made.faults == []
    assert skipped(state) == [(0, 1)]


async def test_transaction_ends_are_recovered_without_a_snapshot(
    site: Site, writer: Writer
) -> None:
    for item in await site.store.list("_rookery/snapshots/"):
        await site.store.delete(item.key)
    producer = await Transactor(writer, "x").init()
    await producer.write(b"a", b"1")
    await producer.end(commit=True)
    await writer.uploads.flush_notes()

    state, made = await recover(site)

    assert made.snapshot == -1
    assert made.faults == []
    assert partition_rows(state)[-1].kind & RowKind.COMMIT
