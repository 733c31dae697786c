"""Replicas agree, recognise their own entries, and detect that they are fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.entry import Entry, EntryAuthor, EventBytes, write_entry
from rookery.cluster.events.brokerevents import (
    BrokerExpired,
    BrokerRegistered,
    ClusterCreated,
    SettingChange,
)
from rookery.cluster.events.logevents import BatchesCommitted, Extent, ProducerIdsAllotted
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.open import open_log
from rookery.cluster.port import READ_BYTES, LogEntry
from rookery.cluster.replica import Replica
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.state import EntryOutcome, Outcome, State
from rookery.errors import Corrupt, ErrorCode, Unavailable
from rookery.testing.clock import ManualClock
from rookery.testing.cluster import AppendFault, FaultyLog
from rookery.testing.wait import PATIENCE_SECONDS
from rookery.wire.codec import encode_bytes
from rookery.wire.message import Message

TOPIC = bytes(range(16))
Start = Callable[..., Awaitable[tuple[Replica, FaultyLog]]]


@pytest.fixture
async def start(request: pytest.FixtureRequest) -> AsyncIterator[Start]:
    """Starts replicas of one log, each registered as a node of its own."""
    replicas: list[Replica] = []

    async def begin(
        node_id: int, snapshot: State | None = None, *, follow: bool = True
    ) -> tuple[Replica, FaultyLog]:
        log = FaultyLog(open_log(f"memory:{request.node.nodeid}"))

        async def load(_at_least: int) -> State | None:
            return read_image(write_image(snapshot)) if snapshot else None

        replica = Replica(log, ManualClock(), load)
        replicas.append(replica)
        await replica.open(follow=follow)
        if not replica.state.cluster_id:
            await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
        await replica.register(registration(node_id))
        return replica, log

    yield begin
    for replica in replicas:
        await replica.close()


def registration(node_id: int) -> BrokerRegistered:
    return BrokerRegistered(process_id=bytes([node_id]) * 16, node_id=node_id, host="h", port=1)


def topic(partitions: int = 1) -> TopicCreated:
    return TopicCreated(
        topic_id=TOPIC, name="t", partitions=partitions, replication_factor=1, configs=[]
    )


def commit(records: int, position: int = 0) -> BatchesCommitted:
    extent = Extent(
        topic_id=TOPIC, partition=0, position=position, size=100, records=records, attributes=0,
        max_timestamp=1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    return BatchesCommitted(object_id=0, extents=[extent])


async def base_offset(replica: Replica, records: int) -> int:
    [outcome] = await replica.propose([commit(records)], [bytes(100)])
    offset: int = outcome.value[0].base_offset
    return offset


async def test_concurrent_replicas_agree(start: Start) -> None:
    replicas = [(await start(node))[0] for node in (1, 2, 3, 4)]
    await replicas[0].propose([topic()])

    async def write(replica: Replica) -> list[int]:
        return [await base_offset(replica, 2) for _ in range(50)]

    offsets = await asyncio.gather(*(write(replica) for replica in replicas))
    for replica in replicas:
        await replica.barrier()

    assert sorted(offset for own in offsets for offset in own) == list(range(0, 400, 2))
    assert all(own == sorted(own) for own in offsets)
    assert len({write_image(replica.state) for replica in replicas}) == 1


async def test_waiting_proposals_share_an_entry(start: Start) -> None:
    replica, log = await start(1)
    await replica.propose([topic()])
    before = replica.state.applied
    log.hold()
    first = replica.propose([commit(1)], [b"x" * 100])
    rest = [replica.propose([commit(1)], [b"y" * 100]) for _ in range(20)]
    log.let_through()

    results = [await proposal for proposal in (first, *rest)]

    assert [result[0].value[0].base_offset for result in results] == list(range(21))
    assert replica.state.applied <= before + 2
    positions = replica.state.topics.by_name["t"].partitions[0].row(0)
    assert positions.size in (100, 2100)


@pytest.mark.parametrize("fault", [AppendFault.LOST_ANSWER, AppendFault.NOT_SENT])
async def test_failed_append_is_applied_once(start: Start, fault: AppendFault) -> None:
    replica, log = await start(1)
    await replica.propose([topic()])
    log.order(fault)

    offsets = [await base_offset(replica, 3) for _ in range(3)]

    assert offsets == [0, 3, 6]
    assert replica.state.topics.by_name["t"].partitions[0].next_offset == 9


async def test_fenced_replica_is_notified_and_can_register_again(start: Start) -> None:
    old, _ = await start(1)
    await old.propose([topic()])
    new, _ = await start(1)
    assert await base_offset(new, 1) == 0

    with pytest.raises(IncarnationFenced):
        await old.propose([commit(5)], [bytes(100)])

    await new.barrier()
    assert new.state.topics.by_name["t"].partitions[0].next_offset == 1
    await old.register(registration(2))
    assert await base_offset(old, 1) == 1


async def test_expiry_based_on_an_old_state_is_void(start: Start) -> None:
    first, _ = await start(1)
    second, _ = await start(2)
    await first.barrier()
    seen = first.state.brokers.sequences[second.incarnation]
    await second.propose([ProducerIdsAllotted(count=1)])

    await first.propose([BrokerExpired(incarnation=second.incarnation, last_sequence=seen)])

    assert second.incarnation in first.state.brokers.sequences


async def test_barrier_sees_entries_of_other_replicas(start: Start) -> None:
    writer, _ = await start(1)
    reader, _ = await start(2)
    await writer.propose([topic()])
    for expected in range(1, 30):
        await base_offset(writer, 1)
        await reader.barrier()
        assert reader.state.topics.by_name["t"].partitions[0].next_offset == expected


async def test_listeners_receive_every_entry_once(start: Start) -> None:
    heard: list[EntryOutcome] = []
    first, _ = await start(1)
    second, _ = await start(2)
    first.listen(lambda applied, _: heard.append(applied))
    before = first.state.applied
    await asyncio.gather(
        *(replica.propose([ProducerIdsAllotted(count=1)]) for replica in (first, second) * 20)
    )
    await first.barrier()
    assert [outcome.number for outcome in heard] == list(range(before + 1, first.state.applied + 1))


async def test_lagging_replica_continues_from_a_snapshot(start: Start) -> None:
    writer, log = await start(1)
    await writer.propose([topic()])
    await base_offset(writer, 7)
    await log.trim(writer.state.applied + 1)

    late, _ = await start(2, snapshot=writer.state)

    assert late.state.topics.by_name["t"].partitions[0].next_offset == 7
    assert await base_offset(late, 1) == 7


async def test_trimmed_log_without_a_snapshot_is_refused(start: Start) -> None:
    writer, log = await start(1)
    await log.trim(writer.state.applied + 1)
    with pytest.raises(Corrupt, match="rookery recover"):
        await start(2)


async def damaged(
    start: Start, node_id: int, writer: Replica, snapshot: State | None = None
) -> tuple[Replica, FaultyLog]:
    """A replica whose memory was damaged, and that has computed a wrong outcome since."""
    replica, log = await start(node_id, snapshot)
    await replica.barrier()
    replica.state.next_producer_id += 1
    await writer.propose([ProducerIdsAllotted(count=1)])
    await replica.barrier()
    return replica, log


async def test_process_with_a_wrong_state_stops_and_others_continue(start: Start) -> None:
    healthy, _ = await start(1)
    await healthy.propose([topic()])
    wrong, _ = await damaged(start, 2, healthy)
    assert await base_offset(wrong, 3) == 0

    # What it has acknowledged counts.
    assert await base_offset(healthy, 1) == 3

    with pytest.raises(Corrupt, match="not the one that the cluster log gives"):
        await wrong.barrier()
    with pytest.raises(Corrupt, match="start the process again"):
        await wrong.propose([commit(1)], [bytes(100)])
    assert healthy.failure is None
    assert await base_offset(healthy, 1) == 4
    again, _ = await start(2)
    assert await base_offset(again, 1) == 5
    await healthy.barrier()
    assert write_image(again.state) == write_image(healthy.state)


@pytest.mark.parametrize("is_newer", [False, True])
async def test_wrong_state_loaded_from_a_snapshot_is_detected(start: Start, is_newer: bool) -> None:
    writer, log = await start(1, follow=False)
    await writer.propose([topic()])
    # The state itself advances; its image stays.
    snapshot = writer.state if is_newer else read_image(write_image(writer.state))
    healthy, _ = await start(2, snapshot)
    wrong, _ = await damaged(start, 3, writer, snapshot)
    await log.trim(snapshot.applied + 1)
    assert await base_offset(wrong, 3) == 0
    assert await base_offset(healthy, 1) == 3
    with pytest.raises(Corrupt, match="not the one that the cluster log gives"):
        await wrong.barrier()
    assert healthy.failure is None


async def test_registering_processes_with_a_wrong_state_stop_no_others(start: Start) -> None:
    await start(1)
    healthy, log = await start(2)
    number, digest = healthy.state.applied, healthy.state.digest
    for node_id in (3, 4):
        registering = write_entry(EntryAuthor(0, 0, 1, number, digest ^ 1), [registration(node_id)])
        await log.append(registering)
        await healthy.propose([ProducerIdsAllotted(count=1)])
        number, digest = healthy.state.applied, healthy.state.digest
    assert sorted(healthy.state.brokers.by_node) == [1, 2, 3, 4]
    assert healthy.failure is None


async def test_wrong_state_is_replaced_by_a_newer_snapshot(start: Start) -> None:
    healthy, _ = await start(1)
    wrong, _ = await start(2, snapshot=healthy.state, follow=False)
    wrong.state.next_producer_id += 1
    await healthy.propose([ProducerIdsAllotted(count=1)])
    await wrong.barrier()
    jumps: list[int] = []
    wrong.when_jumped = lambda: jumps.append(wrong.state.applied)
    for _ in range(3):
        await healthy.propose([ProducerIdsAllotted(count=1)])

    await wrong.barrier()

    assert jumps == [healthy.state.applied]
    assert write_image(wrong.state) == write_image(healthy.state)
    await wrong.propose([ProducerIdsAllotted(count=1)])
    await healthy.barrier()
    assert healthy.failure is None


async def test_digest_dispute_waits_for_an_unreachable_log(start: Start) -> None:
    healthy, log = await start(1, follow=False)
    wrong, _ = await damaged(start, 2, healthy)
    await wrong.propose([ProducerIdsAllotted(count=1)])
    read, calls = log.read, 0

    async def fail_second(after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Unavailable("the recomputation cannot read")
        return await read(after, max_bytes)

    log.read = fail_second  # type: ignore[method-assign] # a fault of the log
    with pytest.raises(Unavailable, match="recomputation"):
        await healthy.barrier()
    await healthy.barrier()
    assert healthy.state.applied == wrong.state.applied
    assert healthy.failure is None


class OtherRules(State):
    """The state of a release that computes another outcome at the same feature level."""

    _handlers = dict(State._handlers) | {  # type: ignore[misc] # other rules are what it is for
        ProducerIdsAllotted: lambda *_: Outcome(ErrorCode.NONE, -1)
    }


async def test_younger_of_two_processes_with_different_rules_stops(
    start: Start,
) -> None:
    older, _ = await start(1)
    replica, _ = await start(2)

    async def load(_at_least: int) -> State:
        return OtherRules()

    younger = Replica(replica._follower.log, ManualClock(), load)
    await younger.open()
    await younger.register(registration(3))
    for _ in range(3):
        if younger.failure is None:
            await younger.propose([ProducerIdsAllotted(count=1)])
        await older.propose([ProducerIdsAllotted(count=1)])
        with suppress(Corrupt):
            await younger.barrier()
    with pytest.raises(Corrupt, match="Start all brokers with the same release"):
        await younger.barrier()
    await older.barrier()
    assert older.failure is None
    await younger.close()


async def test_long_events_are_spread_over_several_entries(start: Start) -> None:
    replica, log = await start(1)
    log.hold()
    waiting = [replica.propose([long_topic(number)]) for number in range(60)]
    log.let_through()
    for proposal in waiting:
        await proposal
    assert len(replica.state.topics.by_name) == 60


async def test_proposal_larger_than_an_entry_is_refused(start: Start) -> None:
    replica, _ = await start(1)
    with pytest.raises(ValueError, match="propose them in parts"):
        await replica.propose([long_topic(number) for number in range(60)])
    with pytest.raises(ValueError, match="propose them in parts"):
        await replica.propose([commit(1)], [bytes(70_000)])
    await replica.propose([topic()])


def long_topic(number: int) -> TopicCreated:
    changes = [SettingChange(name="x", value="y" * 16_000)]
    return TopicCreated(
        topic_id=bytes([number]) * 16,
        name=f"t{number}",
        partitions=1,
        replication_factor=1,
        configs=changes,
    )


async def test_closing_fails_waiting_proposals(start: Start) -> None:
    replica, log = await start(1)
    log.hold()
    waiting = replica.propose([ProducerIdsAllotted(count=1)])
    await asyncio.sleep(0)
    await replica.close()
    with pytest.raises(Unavailable):
        await waiting


async def test_proposal_in_flight_is_answered_when_the_broker_rejoins(start: Start) -> None:
    first, log = await start(1)
    second, _ = await start(2)
    await first.propose([topic()])
    await second.barrier()
    log.hold()
    lost = first.propose([commit(3)], [bytes(100)])
    await asyncio.sleep(0.01)
    seen = second.state.brokers.sequences[first.incarnation]
    await second.propose([BrokerExpired(incarnation=first.incarnation, last_sequence=seen)])
    await first.barrier()
    assert first.incarnation not in first.state.brokers.sequences
    joining = asyncio.create_task(first.register(registration(1)))
    await asyncio.sleep(0.01)
    log.let_through()
    await joining
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(IncarnationFenced):
            await lost
        assert await base_offset(first, 3) == 0


@pytest.mark.parametrize("fails", [1, 5])
async def test_failed_read_after_an_append_is_retried(start: Start, fails: int) -> None:
    other, _ = await start(1)
    replica, log = await start(2, follow=False)
    await other.propose([topic()])
    appends = log.arrived
    log.failing_reads = fails

    proposed = replica.propose([commit(3)], [bytes(100)])

    if fails == 1:
        [outcome] = await proposed
        assert outcome.value[0].base_offset == 0
    else:  # the waiter gets an error, the entry counts all the same
        with pytest.raises(Unavailable, match="cannot be reached"):
            await proposed
    assert await base_offset(replica, 1) == 3
    assert log.arrived == appends + 2
    assert replica.failure is None


async def test_an_error_in_apply_stops_the_replica_when_a_barrier_meets_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, _ = await start(1)
    broken, _ = await start(2, follow=False)
    failures: list[Exception] = []
    broken.when_failed = failures.append
    create = State._handlers[TopicCreated]

    def fail_once(state: State, *rest: Any) -> Outcome:
        if state is broken.state:
            raise KeyError("a bug in apply")
        return create(state, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(State, "_handlers", dict(State._handlers) | {TopicCreated: fail_once})
        await healthy.propose([topic()])
        with pytest.raises(KeyError, match="a bug in apply"):
            await broken.barrier()

    assert failures == [broken.failure]
    with pytest.raises(KeyError):
        await broken.barrier()
    with pytest.raises(KeyError):
        await broken.propose([ProducerIdsAllotted(count=1)])
    assert await base_offset(healthy, 1) == 0


async def test_an_entry_of_a_newer_program_stops_the_replica_when_a_barrier_meets_it(
    start: Start,
) -> None:
    replica, log = await start(1, follow=False)
    entry = Entry(incarnation=0, sequence=0, stamp_ms=1, seen=0, digest=0, events=[], payload=b"")
    entry.events = [EventBytes(key=32_000, version=0, body=b"")]
    await log.append(encode_bytes(entry, 0))
    for _ in range(2):
        with pytest.raises(Corrupt, match="start a newer Rookery"):
            await replica.barrier()
    assert isinstance(replica.failure, Corrupt)


@pytest.mark.parametrize("fault", [AppendFault.NOT_SENT, AppendFault.LOST_ANSWER])
async def test_sequences_have_no_gap_after_a_jump(start: Start, fault: AppendFault) -> None:
    writer, writer_log = await start(1)
    await writer.propose([topic()])
    late, log = await start(2, snapshot=writer.state, follow=False)
    await base_offset(late, 2)
    jumps: list[int] = []
    late.when_jumped = lambda: jumps.append(late.state.applied)
    log.hold()
    log.order(fault)
    lost = late.propose([commit(3)], [bytes(100)])
    await base_offset(writer, 5)
    await writer_log.trim(writer.state.applied + 1)
    log.let_through()

    with pytest.raises(Unavailable, match="fallen behind"):
        await lost
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await base_offset(late, 1) == 10

    assert jumps
    assert late.state.brokers.sequences[late.incarnation] == 3


async def test_cancelled_waiter_of_a_fenced_replica_is_ignored(start: Start) -> None:
    first, _ = await start(1)
    second, _ = await start(2)
    await first.barrier()
    await first.propose([BrokerExpired(incarnation=second.incarnation, last_sequence=0)])
    await second.barrier()

    second.propose([ProducerIdsAllotted(count=1)]).cancel()
    with pytest.raises(IncarnationFenced):
        await second.propose([ProducerIdsAllotted(count=1)])

    assert second.failure is None
    await second.register(registration(2))
    await second.propose([ProducerIdsAllotted(count=1)])


async def test_prerequisite_events_are_proposed_first(start: Start) -> None:
    replica, _ = await start(1)
    topic = TopicCreated(topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[])
    created: list[asyncio.Future[list[Outcome]]] = []
    seen: list[EntryOutcome] = []
    replica.listen(lambda applied, _: seen.append(applied))

    def create(events: Sequence[Message]) -> None:
        if not isinstance(events[0], TopicCreated):
            created.append(replica.propose([topic]))

    replica.before_propose = create
    await replica.propose([ProducerIdsAllotted(count=1)])

    assert [outcome.error for outcome in await created[0]] == [ErrorCode.NONE]
    assert "t" in replica.state.topics.by_name
    assert [len(applied.outcomes) for applied in seen] in ([2], [1, 1])
