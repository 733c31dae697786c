"""A broker's life: restarts, snapshots, upkeep, expiry and coming back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

import pytest

from rookery.broker.broker import Broker
from rookery.broker.call import Services
from rookery.broker.process import liveness
from rookery.broker.process.clientports import ClientPorts
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.objectlog import ObjectLogBacking, replica_of
from rookery.client import Client, TopicPartition
from rookery.client.configs import ResourceType
from rookery.clock import SystemClock
from rookery.cluster.events.brokerevents import (
    BrokerBeat,
    BrokerExpired,
    BrokerRegistered,
    ClusterCreated,
)
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.errors import ConfigError, Conflict, Corrupt, Error, ErrorCode, Unavailable
from rookery.formats.keys import journal_name, object_id
from rookery.log.maintain import snapshots
from rookery.log.origin import Handles
from rookery.log.settings import RewriteSettings
from rookery.net.upstream import connect
from rookery.testing.cluster import FaultyLog
from rookery.testing.ports import free_port
from rookery.testing.wait import wait_until_async
from rookery.wire.message import Message
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.produce import PartitionProduceResponse
from rookery.wire.messages.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.broker.raw import Raw, batch

Start = Callable[..., Awaitable[tuple[Broker, Client]]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts brokers over one folder, each with a client of its own."""
    async with AsyncExitStack() as stack:

        async def begin(**changes: object) -> tuple[Broker, Client]:
            values: dict[str, object] = {
                "data": str(tmp_path / "data"),
                "listen": "127.0.0.1:0",
                "durability": "os",
                "upkeep_interval_ms": 30,
                "delete_delay_ms": 0,
                "orphan_interval_ms": 1,
                "caretaker": "inline",
            }
            broker = Broker(BrokerSettings(**(values | changes)))  # type: ignore[arg-type] # by name
            try:
                await broker.start()
            except BaseException:
                await broker.abandon()
                raise
            stack.push_async_callback(stop, broker)
            client = Client(f"127.0.0.1:{broker.listener.port}")
            await stack.enter_async_context(client)
            return broker, client

        yield begin


# Not by `id`, which a later broker may get again.
stopped: WeakSet[Broker] = WeakSet()


async def stop(broker: Broker) -> None:
    """Stop a broker, unless the test has done so."""
    if broker not in stopped:
        stopped.add(broker)
        await broker.stop()


async def fill(client: Client, topic: str, numbers: range, size: int = 0) -> None:
    producer = client.producer()
    for number in numbers:
        value = (b"%d" % number).ljust(size, b".")
        await client.produce(topic, value, partition=0)
    await producer.close()


async def read(client: Client, topic: str) -> list[int]:
    return [int((r.value or b"").rstrip(b".")) async for r in client.read(topic, 0)]


async def test_restart_continues_from_a_snapshot(start: Start) -> None:
    broker, client = await start(snapshot_entries=20)
    await client.create_topic("t", 1)
    await fill(client, "t", range(100))
    await wait_until_async(lambda: broker.caretaker.snapshot > 50)
    async with asyncio.timeout(20):
        while not await broker.backing.cluster_log.floor():  # noqa: ASYNC110 (it notifies no one)
            await asyncio.sleep(0.01)
    await fill(client, "t", range(100, 120))
    await stop(broker)

    _, client = await start()

    assert await read(client, "t") == list(range(120))
    await fill(client, "t", range(120, 125))
    assert await read(client, "t") == list(range(125))


async def test_payloads_are_moved_out_of_entries_and_stay_readable(start: Start) -> None:
    broker, client = await start(tail_bytes=0, rewrite=RewriteSettings(merge_age_ms=1))
    await client.create_topic("t", 1)
    await fill(client, "t", range(100))
    state = broker.replica.state
    await wait_until_async(lambda: state.objects.oldest_payload is None)
    assert await read(client, "t") == list(range(100))
    assert any(object_id > 0 for object_id in state.topics.by_name["t"].partitions[0].objects)


async def test_retention_by_size_moves_the_log_start(start: Start) -> None:
    broker, client = await start()
    await client.create_topic("t", 1)
    await client.admin.configs.alter(ResourceType.TOPIC, "t", {"retention.bytes": "50000"})
    await fill(client, "t", range(60), size=10_000)
    partition = broker.replica.state.topics.by_name["t"].partitions[0]
    # Without its first row there would be too little; merged rows have many records.
    await wait_until_async(lambda: partition.size_bytes - partition.row(0).size < 50_000)
    assert partition.log_start > 0
    assert partition.size_bytes >= 50_000
    numbers = await read(client, "t")
    assert numbers == list(range(partition.log_start, 60))


async def test_expired_broker_rejoins_and_serves(start: Start) -> None:
    first, client = await start(node_id=1)
    second, _ = await start(node_id=2)
    await client.create_topic("t", 1)
    await fill(client, "t", range(5))
    old = first.replica.incarnation
    await second.replica.barrier()
    last = second.replica.state.brokers.sequences[old]

    await second.replica.propose([BrokerExpired(incarnation=old, last_sequence=last)])

    await wait_until_async(lambda: first.replica.incarnation not in (0, old))
    await fill(client, "t", range(5, 10))
    assert await read(client, "t") == list(range(10))


async def test_expired_broker_replaces_its_registrations_with_lost_answers(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, client = await start(node_id=1)
    second, _ = await start(node_id=2)
    await client.create_topic("t", 1)
    old = first.replica.incarnation
    register, failures = first.replica.register, 0

    async def unlucky(event: Message) -> int:
        nonlocal failures
        failures += 1
        if failures <= 2:
            await register(event)
            first.replica._follower.incarnation = 0
            raise Unavailable("the answer was lost")
        return await register(event)

    monkeypatch.setattr(first.replica, "register", unlucky)
    hasty = replace(first.member._settings, retry_ms=10)
    monkeypatch.setattr(first.member, "_settings", hasty)
    await second.replica.barrier()
    last = second.replica.state.brokers.sequences[old]

    await second.replica.propose([BrokerExpired(incarnation=old, last_sequence=last)])

    await wait_until_async(lambda: failures > 2 and first.replica.incarnation not in (0, old))
    await fill(client, "t", range(5))
    assert await read(client, "t") == list(range(5))
    await second.replica.barrier()
    assert second.replica.state.brokers.by_node[1].incarnation == first.replica.incarnation


async def kill(broker: Broker) -> None:
    """End a broker as kill -9 does: its locks are released, and the cluster is not notified."""
    stopped.add(broker)
    await broker.member.close()
    await broker.periodic_tasks.stop()
    await asyncio.gather(*(listener.stop(grace_ms=0) for listener in broker.ports.listeners))
    await broker.replica.close()
    broker.node_lock.close()


def object_log(broker: Broker) -> ObjectLogBacking:
    assert isinstance(broker.backing, ObjectLogBacking)
    return broker.backing


async def owner_elsewhere(broker: Broker, node_id: int, port: int | None = None) -> Replica:
    """Register a broker that shares the cluster log with ours, but not its locks.

    Unless a port is given, something listens at its address.
    """
    port = broker.listener.port if port is None else port
    replica = replica_of(object_log(broker).handles, SystemClock())
    await replica.open()
    await replica.register(
        BrokerRegistered(process_id=bytes(16), node_id=node_id, host="127.0.0.1", port=port)
    )
    return replica


async def test_node_id_in_use_is_refused_and_its_owner_continues(start: Start) -> None:
    first, client = await start(node_id=1)
    await client.create_topic("t", 1)

    with pytest.raises(ConfigError, match="node id 1 is in use by another process of this host"):
        await start(node_id=1)

    await fill(client, "t", range(5))
    assert await read(client, "t") == list(range(5))
    assert not first.failed.done()


async def test_an_address_in_use_is_refused(start: Start) -> None:
    await start(advertise="kafka.example:30001")
    with pytest.raises(ConfigError, match="node id 1 is in use"):
        await start(advertise="kafka.example:30001")


async def test_killed_broker_gets_its_node_id_again_immediately(start: Start) -> None:
    first, _ = await start(node_id=1)
    await kill(first)

    # A wait for its session would not end within this test.
    again, client = await start(node_id=1, session_timeout_ms=3_600_000)

    assert again.services.node_id == 1
    await client.create_topic("t", 1)


async def test_a_node_id_of_another_host_is_refused_while_its_owner_writes(start: Start) -> None:
    first, _ = await start(node_id=1)
    owner = await owner_elsewhere(first, 2)

    async def beat() -> None:
        while True:
            await owner.propose([BrokerBeat()])
            await asyncio.sleep(0.01)

    beats = asyncio.create_task(beat())
    with pytest.raises(ConfigError, match="node id 2 is in use by the live broker at"):
        await start(node_id=2, session_timeout_ms=3_600_000)
    beats.cancel()
    assert owner.state.brokers.by_node[2].incarnation == owner.incarnation
    await owner.close()


async def test_a_node_id_of_another_host_is_taken_if_nothing_listens_there(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await start(node_id=1)
    owner = await owner_elsewhere(first, 2, free_port())
    # As if the loopback address were that of another host.
    monkeypatch.setattr(liveness, "_is_loopback", lambda _: False)
    second, _ = await start(node_id=2, session_timeout_ms=3_600_000, beat_interval_ms=50)
    assert second.services.node_id == 2
    await owner.close()


async def test_a_node_id_of_another_host_is_taken_after_a_session_of_silence(start: Start) -> None:
    first, _ = await start(node_id=1)
    owner = await owner_elsewhere(first, 2)
    second, _ = await start(node_id=2, session_timeout_ms=200)
    assert second.services.node_id == 2
    assert owner.incarnation not in second.replica.state.brokers.sequences
    await owner.close()


async def test_broker_whose_node_id_is_taken_over_stops(start: Start) -> None:
    first, _ = await start(node_id=1)
    other = await owner_elsewhere(first, 1)
    with pytest.raises(ConfigError, match="node id 1"):
        async with asyncio.timeout(10):
            await first.failed
    await other.close()


async def test_broker_that_missed_its_expiry_rejoins_with_another_node_id(start: Start) -> None:
    first, _ = await start(caretaker="off")
    second, _ = await start(caretaker="off")
    follower = first.replica._follower
    log = follower.log = FaultyLog(follower.log)
    await second.replica.barrier()
    log.cut()
    old, node_id = first.replica.incarnation, first.services.node_id
    last = second.replica.state.brokers.sequences[old]
    await second.replica.propose([BrokerExpired(incarnation=old, last_sequence=last)])
    other = await owner_elsewhere(second, -1)
    await second.replica.barrier()
    assert second.replica.state.brokers.by_node[node_id].incarnation == other.incarnation
    # The log is trimmed: the first broker reads of none of this, only a snapshot.
    await snapshots.save(object_log(second).handles.store, second.replica.state)
    await second.backing.cluster_log.trim(second.replica.state.applied + 1)
    log.mend()

    await wait_until_async(lambda: first.replica.incarnation not in (0, old))

    assert first.services.node_id not in (node_id, second.services.node_id)
    assert not first.failed.done()
    await other.close()


def leader_of(answer: PartitionProduceResponse) -> int | None:
    return answer.current_leader.leader_id if answer.current_leader is not None else None


async def test_stopping_broker_deregisters_before_it_closes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, client = await start(node_id=1)
    second, _ = await start(node_id=2)
    await client.create_topic("t", 8)
    line = Raw(await connect("127.0.0.1", first.listener.port))
    has_left, may_close = asyncio.Event(), asyncio.Event()

    async def redirect(_: ClientPorts, __: Services) -> None:
        has_left.set()
        await may_close.wait()

    monkeypatch.setattr(ClientPorts, "redirect_clients", redirect)
    stopping = asyncio.create_task(stop(first))
    held = asyncio.create_task(line.produce("t", batch(b"x")))
    await asyncio.wait_for(has_left.wait(), 10)

    # While it is still served, it names the remaining broker, for data and for groups.
    metadata = await line.ask(METADATA, 12, MetadataRequest(topics=None))
    assert [broker.node_id for broker in metadata.brokers] == [2]
    assert {part.leader_id for part in metadata.topics[0].partitions} == {2}
    coordinator = await line.ask(FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g", key_type=0))
    assert coordinator.node_id == 2
    # A produce that came before or while it left is committed, or sent on to the new leader.
    answers = [await held, await line.produce("t", batch(b"y"), version=10)]
    assert answers[1].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader_of(answers[1]) == 2
    # What this broker cannot decide any more ends the connection: clients ask elsewhere.
    new = CreatableTopic(
        name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    with pytest.raises(Error):
        await line.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=[new], timeout_ms=10_000))
    may_close.set()
    await stopping
    line.upstream.close()
    assert not second.failed.done()


async def test_produce_waits_until_the_broker_has_deregistered(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, client = await start(node_id=1)
    await start(node_id=2)
    await client.create_topic("t", 1)
    line = Raw(await connect("127.0.0.1", first.listener.port))
    produces: list[asyncio.Task[PartitionProduceResponse]] = []
    drain = first.services.writer.drain

    async def drain_late() -> None:
        before = first.services.requests
        produces.append(asyncio.create_task(line.produce("t", batch(b"x"), version=10)))
        await wait_until_async(lambda: first.services.requests > before)
        await drain()

    monkeypatch.setattr(first.services.writer, "drain", drain_late)
    await stop(first)
    answer = await produces[0]
    assert answer.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader_of(answer) == 2
    line.upstream.close()


async def test_any_broker_serves_any_partition(start: Start) -> None:
    _, client = await start(node_id=1)
    _, other = await start(node_id=2)
    await client.create_topic("t", 40)
    for partition in range(40):
        await client.produce("t", b"%d" % partition, partition=partition)
    view = await other.topic("t")
    assert {part.leader for part in view.partitions.values()} == {1, 2}
    for partition in range(40):
        assert await other.offsets.end(TopicPartition("t", partition)) == 1


async def test_a_restart_at_the_same_address_keeps_the_node_id(start: Start) -> None:
    first, _ = await start(advertise="kafka.example:30001")
    second, _ = await start(advertise="kafka.example:30002")
    ids = [first.services.node_id, second.services.node_id]
    await kill(second)
    again, _ = await start(advertise="kafka.example:30002")
    assert [first.services.node_id, again.services.node_id] == ids


async def test_topics_are_deleted_with_their_data(start: Start) -> None:
    broker, client = await start()
    await client.create_topic("t", 1)
    await fill(client, "t", range(10), size=100_000)
    old = broker.replica.state.topics.by_name["t"].id
    await client.delete_topic("t")
    await client.create_topic("t", 1)
    assert broker.replica.state.topics.by_name["t"].id != old
    assert await read(client, "t") == []
    await fill(client, "t", range(3))
    assert await read(client, "t") == [0, 1, 2]


async def test_bytes_lost_by_the_machine_are_a_gap_and_never_wrong_data(
    start: Start, tmp_path: Path
) -> None:
    broker, client = await start()
    await client.create_topic("t", 1)
    for number in range(4):  # each in the journal, as a row of its own
        await client.produce("t", b"%d" % number + b"." * 900_000, partition=0)
    await stop(broker)
    rows = [broker.replica.state.topics.by_name["t"].partitions[0].row(i) for i in range(4)]
    [journal] = (tmp_path / "data" / "journal").iterdir()
    with journal.open("r+b") as file:
        file.seek(rows[1].position + 1000)
        file.write(b"not what was written")
        file.truncate(rows[3].position + 500)
    (tmp_path / "data" / "boot-id").write_text("an earlier start of the machine")

    again, client = await start()

    assert object_log(again).lost_records == 2
    assert await read(client, "t") == [0, 2]
    assert await client.offsets.end(TopicPartition("t", 0)) == 4
    await fill(client, "t", range(4, 6))
    assert await read(client, "t") == [0, 2, 4, 5]
    await stop(again)
    third, client = await start()
    assert object_log(third).lost_records == 0
    assert await read(client, "t") == [0, 2, 4, 5]


@pytest.mark.parametrize("durability", ["os", "disk"])
async def test_truncated_cluster_log_never_reuses_an_incarnation(
    start: Start, tmp_path: Path, durability: str
) -> None:
    broker, client = await start(durability=durability)
    await client.create_topic("t", 1)
    await fill(client, "t", range(3))
    await stop(broker)
    # The next two registrations were made before the power cut, and wrote journals.
    lost = [broker.replica.state.applied + 1, broker.replica.state.applied + 2]
    for incarnation in lost:
        (tmp_path / "data" / "journal" / journal_name(object_id(incarnation, 0))).touch()

    if durability == "disk":
        with pytest.raises(Conflict, match="exists already"):
            await start(durability=durability)
        return
    again, client = await start(durability=durability)

    assert again.replica.incarnation not in lost
    await fill(client, "t", range(3, 6))
    assert await read(client, "t") == list(range(6))


async def test_two_brokers_that_create_a_cluster_concurrently_share_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Handles.owner
    others: list[Broker] = []

    async def look_late(self: Handles) -> str | None:
        if not others:
            monkeypatch.undo()
            others.append((await start())[0])
        return await look(self)

    monkeypatch.setattr(Handles, "owner", look_late)
    late, _ = await start()
    assert late.replica.state.cluster_id == others[0].replica.state.cluster_id


async def test_store_without_its_cluster_log_is_not_reinitialised(
    start: Start, tmp_path: Path
) -> None:
    await stop((await start())[0])
    for file in (tmp_path / "data").glob("cluster.sqlite*"):
        if file.is_file():
            file.unlink()
    with pytest.raises((ConfigError, Corrupt), match="recover"):
        await start()


async def test_cluster_of_an_older_feature_level_is_upgraded_by_a_client(
    start: Start, request: pytest.FixtureRequest
) -> None:
    url = f"memory:{request.node.name}"
    founder = Replica(open_log(url), SystemClock())
    await founder.open()
    await founder.create_cluster(ClusterCreated(cluster_id="c" * 22, feature_level=1))
    await founder.close()
    first, client = await start(data="", store=url, cluster=url, caretaker="off")
    second, _ = await start(data="", store=url, cluster=url, caretaker="off")
    await client.create_topic("t", 1)
    await fill(client, "t", range(3))
    assert first.replica.state.feature_level == 1

    raised = FeatureUpdateKey(feature="rookery.version", max_version_level=FEATURE_LEVEL)
    raw = Raw(await connect("127.0.0.1", second.listener.port))
    answer = await raw.ask(UPDATE_FEATURES, 1, UpdateFeaturesRequest(feature_updates=[raised]))
    raw.upstream.close()

    assert answer.error_code is ErrorCode.NONE
    await fill(client, "t", range(3, 6))
    assert await read(client, "t") == list(range(6))
    for broker in (first, second):
        await broker.replica.barrier()
        assert broker.replica.state.feature_level == FEATURE_LEVEL
    assert first.replica.state.digest == second.replica.state.digest
