"""The same transactions with Kafka and Rookery: codes and markers are equal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ErrorCode
from rookery.net.upstream import connect
from rookery.records import batches, recordcodec
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.messages.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    TopicRequest,
)
from rookery.wire.messages.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from tests.broker.raw import Raw, bytes_of
from tests.broker.txns import COMMITTED, Transactor, committed

Told = list[object]
Story = Callable[[Raw, str], Awaitable[Told]]

# Kafka ends a transaction after its answer: until then it asks to come again.
_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


async def sure(ask: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
    """Ask again while the answer is to ask again."""
    while (code := await ask()) in _AGAIN:  # noqa: ASYNC110 (Kafka does not tell when)
        await asyncio.sleep(0.02)
    return code


async def begun(client: Raw, name: str, *, newer: bool) -> Transactor:
    producer = Transactor(client, name, is_newer=newer)

    async def init() -> ErrorCode:
        return (await producer.init()).error_code

    await sure(init)
    return producer


async def added(producer: Transactor, topic: str, *partitions: int) -> ErrorCode:
    async def add() -> ErrorCode:
        return (await producer.add(topic, *partitions))[0]

    return await sure(add)


async def wrote(producer: Transactor, topic: str, value: bytes, version: int) -> ErrorCode:
    return await sure(lambda: producer.write(topic, value, version=version))


async def ended(producer: Transactor, *, commit: bool, version: int | None = None) -> ErrorCode:
    async def end() -> ErrorCode:
        return (await producer.end(commit=commit, version=version)).error_code

    return await sure(end)


async def find_group(client: Raw, name: str) -> ErrorCode:
    """Have Kafka make the topic of groups."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[f"{name}-group"])
    return (await client.ask(FIND_COORDINATOR, 4, request)).coordinators[0].error_code


async def older(client: Raw, topic: str) -> Told:
    producer = await begun(client, topic, newer=False)
    told: Told = [await ended(producer, commit=True), await ended(producer, commit=False)]
    told += [await wrote(producer, topic, b"early", version) for version in (9, 11)]
    told += [await added(producer, topic, 0), await wrote(producer, topic, b"a", 9)]
    told += [await ended(producer, commit=True), await ended(producer, commit=True)]
    told.append(await ended(producer, commit=False))
    told += [await added(producer, topic, 0), await wrote(producer, topic, b"b", 9)]
    told += [await ended(producer, commit=False), await ended(producer, commit=False)]
    return told


async def newer(client: Raw, topic: str) -> Told:
    producer = await begun(client, topic, newer=True)
    told: Told = [await ended(producer, commit=True), await ended(producer, commit=False)]
    told += [producer.epoch, await wrote(producer, topic, b"a", 12)]
    first = producer.epoch
    told += [await ended(producer, commit=True), producer.epoch]
    # The answer got lost: a repetition gets it again; a different outcome is refused.
    producer.epoch = first
    told += [await ended(producer, commit=True), producer.epoch]
    producer.epoch = first
    told.append(await ended(producer, commit=False))
    told.append(await wrote(producer, topic, b"late", 12))
    return told


async def fenced(client: Raw, topic: str) -> Told:
    zombie = await begun(client, topic, newer=False)
    told: Told = [await added(zombie, topic, 0), await wrote(zombie, topic, b"a", 9)]
    await begun(client, topic, newer=False)
    told += [await wrote(zombie, topic, b"b", 9), await added(zombie, topic, 0)]
    told += [await ended(zombie, commit=True), await ended(zombie, commit=True, version=1)]
    stranger = Transactor(client, topic, is_newer=False)
    stranger.id, stranger.epoch = 123_456, 0
    told += [await added(stranger, topic, 0), await ended(stranger, commit=True)]
    nobody = Transactor(client, f"{topic}-nobody", is_newer=False)
    nobody.id, nobody.epoch = zombie.id, zombie.epoch
    told += [await added(nobody, topic, 0), await ended(nobody, commit=True)]
    return told


async def markers(client: Raw, topic: str) -> Told:
    producer = await begun(client, topic, newer=False)
    first = producer.epoch
    told: Told = []
    for commit in (True, False):
        await added(producer, topic, 0)
        await wrote(producer, topic, b"a", 9)
        await ended(producer, commit=commit)
    await added(producer, topic, 0)  # waits until Kafka has written the markers
    answer = await client.fetch(topic, 0, isolation_level=COMMITTED)
    data = bytes_of(answer)
    for header in batches.check_fetched(data):
        if header.is_control:
            [record] = recordcodec.read(data, header)
            told.append(
                (header.base_offset, header.size, header.attributes, header.base_sequence,
                 header.producer_epoch - first, header.record_count, record.key, record.value)
            )  # fmt: skip
    told += [transaction.first_offset for transaction in answer.aborted_transactions or []]
    told.append(answer.last_stable_offset)
    told += await committed(client, topic)
    return told


async def offsets(client: Raw, topic: str) -> Told:
    group = f"{topic}-group"
    producer = await begun(client, topic, newer=False)

    async def commit(version: int, **who: object) -> ErrorCode:
        return await sure(lambda: producer.commit_offset(group, topic, 5, version=version, **who))

    told: Told = [await commit(version) for version in (3, 4)]
    first = producer.epoch
    told += [await sure(lambda: producer.add_offsets(group))]
    # Kafka's groups are in a partition of a topic of its own.
    told += [await transaction_of(client, producer, first), await commit(3), await commit(4)]
    told.append(await commit(3, generation_id=1, member_id="nobody"))
    told.append(await commit(3, generation_id=-1, member_id="nobody"))
    told.append(await sure(lambda: producer.commit_offset(group, "no-such-topic", 5)))
    told.append(await sure(lambda: producer.commit_offset("", topic, 5)))
    told += [await unstable(client, group, topic, stable=stable) for stable in (True, False)]
    told += [await ended(producer, commit=True)]
    # Kafka moves offsets after its answer.
    while (last := await unstable(client, group, topic, stable=True))[1] < 0:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    told.append(last)
    producer.epoch += 1
    told += [await commit(3), await sure(lambda: producer.add_offsets(group))]
    return told


async def unstable(client: Raw, group: str, topic: str, *, stable: bool) -> tuple[ErrorCode, int]:
    """Ask how far a group has read."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
        require_stable=stable,
    )
    answer = await client.ask(OFFSET_FETCH, 7, request)
    part = answer.topics[0].partitions[0]
    return part.error_code, part.committed_offset


async def described(client: Raw, topic: str) -> Told:
    """Return the answers about an id and its producer after every step, by both protocols."""
    told: Told = []
    for newer in (False, True):
        name = f"{topic}-{newer}"
        producer = await begun(client, name, newer=newer)
        first = producer.epoch

        async def look(producer: Transactor = producer, first: int = first) -> None:
            told.append(await transaction_of(client, producer, first))
            told.append(
                [await producer_of(client, topic, index, producer, first) for index in (0, 1)]
            )

        await look()
        for commit in (True, False, True):
            await added(producer, topic, 0, 1)
            await look()
            await wrote(producer, topic, b"a", 12 if newer else 9)
            await wrote(producer, topic, b"b", 12 if newer else 9)
            await look()
            await ended(producer, commit=commit)
            await look()
            told.append(await listed(client, name))
        await begun(client, name, newer=newer)
        await look()
        told.append(await listed(client, name))
    told += [
        await transaction_of(client, Transactor(client, name, is_newer=True), 0)
        for name in ("", "nobody")
    ]
    return told


async def transaction_of(client: Raw, producer: Transactor, first: int) -> Told:
    """Ask about a transactional id; Kafka is asked until it has done what it answered."""
    request = DescribeTransactionsRequest(transactional_ids=[producer.name])
    while True:
        [state] = (await client.ask(DESCRIBE_TRANSACTIONS, 0, request)).transaction_states
        if not state.transaction_state.startswith("Prepare"):
            break
        await asyncio.sleep(0.02)
    is_ours = state.producer_id == producer.id
    return [
        state.error_code, state.transaction_state, state.transaction_timeout_ms,
        since(state.transaction_start_time_ms), is_ours, state.producer_epoch - first,
        # The tests' Kafka keeps offsets in five partitions, not in fifty.
        [(topic.topic, sorted(index % 5 for index in topic.partitions)) for topic in state.topics],
    ]  # fmt: skip


async def producer_of(
    client: Raw, topic: str, partition: int, producer: Transactor, first: int
) -> Told:
    """Ask what a partition knows of a producer."""
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    answer = await client.ask(DESCRIBE_PRODUCERS, 0, request)
    [part] = answer.topics[0].partitions
    return [
        (active.producer_epoch - first, active.last_sequence, since(active.last_timestamp),
         active.coordinator_epoch, active.current_txn_start_offset)
        for active in part.active_producers
        if active.producer_id == producer.id
    ]  # fmt: skip


async def listed(client: Raw, name: str) -> Told:
    """Tell by which filters an id is found."""
    told: Told = []
    for duration, states in (
        *((duration, []) for duration in (-1, 0, 3_600_000)),
        *((-1, [state]) for state in ("Empty", "CompleteCommit", "CompleteAbort")),
    ):
        request = ListTransactionsRequest(
            state_filters=states, producer_id_filters=[], duration_filter=duration
        )
        answer = await client.ask(LIST_TRANSACTIONS, 1, request)
        states_of = {state.transactional_id: state for state in answer.transaction_states}
        told.append(states_of[name].transaction_state if name in states_of else None)
    return told


def since(time_ms: int) -> str | int:
    """Replace a time of just now by "now"."""
    return "now" if abs(time() * 1000 - time_ms) < 600_000 else time_ms


@asynccontextmanager
async def client_of(bootstrap: str, name: str) -> AsyncIterator[Raw]:
    """Connect, and wait until there is a coordinator for transactions."""
    host, _, port = bootstrap.rpartition(":")
    upstream = await connect(host, int(port))
    client = Raw(upstream)
    try:

        async def find() -> ErrorCode:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
            answer = await client.ask(FIND_COORDINATOR, 4, request)
            return answer.coordinators[0].error_code

        await sure(find)
        await sure(lambda: find_group(client, name))
        yield client
    finally:
        upstream.close()
        await upstream.wait_closed()


@pytest.mark.kafka
@pytest.mark.parametrize(
    "story", [older, newer, fenced, markers, offsets, described], ids=lambda story: story.__name__
)
async def test_codes_match_kafka(broker: ServedBroker, kafka: KafkaServer, story: Story) -> None:
    told = []
    for bootstrap in (broker.bootstrap, kafka.bootstrap):
        topic = f"parity-{story.__name__}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        await asyncio.to_thread(admin.create_topics([NewTopic(topic, 2)])[topic].result, 30)
        async with client_of(bootstrap, topic) as client:
            told.append(await story(client, topic))
    assert told[0] == told[1]


@pytest.mark.kafka
async def test_kafka_acknowledges_reused_sequences(
    broker: ServedBroker, kafka: KafkaServer
) -> None:
    """librdkafka reuses the sequences of a batch that it gave up: Kafka then stores nothing."""
    told = []
    for bootstrap in (broker.bootstrap, kafka.bootstrap):
        topic = "parity-reused"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        await asyncio.to_thread(admin.create_topics([NewTopic(topic, 1)])[topic].result, 30)
        async with client_of(bootstrap, topic) as client:
            producer = await begun(client, topic, newer=False)
            await added(producer, topic, 0)
            await wrote(producer, topic, b"given up", 9)
            await ended(producer, commit=False)
            producer.sequences.clear()
            await added(producer, topic, 0)
            code = await wrote(producer, topic, b"next", 9)
            told.append((code, await ended(producer, commit=True), await committed(client, topic)))
    assert told == [
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE, []),
        (ErrorCode.NONE, ErrorCode.NONE, []),
    ]
