"""Transactions by hand: every version's codes, and the view of readers of committed records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rookery.broker.fetchplan import EXAMINED
from rookery.broker.settings import BrokerSettings
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.errors import ErrorCode
from rookery.log.settings import RewriteSettings
from rookery.model.control import ControlRecordType
from rookery.model.offset import LATEST
from rookery.records import batches, recordcodec
from rookery.testing.cluster import FaultyLog
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until
from rookery.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from rookery.wire.messages.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    TopicRequest,
)
from rookery.wire.messages.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from rookery.wire.messages.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from rookery.wire.messages.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from rookery.wire.messages.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.conftest import Start
from tests.broker.offsets import find
from tests.broker.raw import Raw, batch, bytes_of, create, forget_tail, raw, until_waiting
from tests.broker.txns import COMMITTED, Transactor, committed

NONE = ErrorCode.NONE
NEWER = pytest.mark.parametrize("newer", [False, True], ids=["v1", "v2"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with ServedBroker(folder, BrokerSettings(durability="os")) as broker:
        yield broker


@pytest.fixture
def topic(served: ServedBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    create(served, name, 2)
    return name


def partition_of(broker: ServedBroker, topic: str, index: int = 0) -> Partition:
    return broker.broker.replica.state.topics.by_name[topic].partitions[index]


async def begun(client: Raw, name: str, *, newer: bool) -> Transactor:
    producer = Transactor(client, name, is_newer=newer)
    assert (await producer.init()).error_code is NONE
    return producer


# Data.


@NEWER
async def test_read_committed_returns_committed_records_only(
    served: ServedBroker, topic: str, *, newer: bool
) -> None:
    async with raw(served) as client:
        producer = await begun(client, topic, newer=newer)
        assert await producer.send(topic, b"a", b"b") is NONE
        assert await committed(client, topic) == []
        assert (await producer.end(commit=True)).error_code is NONE
        assert await committed(client, topic) == [b"a", b"b"]
        assert await producer.send(topic, b"c") is NONE
        assert (await producer.end(commit=False)).error_code is NONE
        assert await client.produce(topic, batch(b"d")) is not None
        assert await committed(client, topic) == [b"a", b"b", b"d"]
        whole = await client.fetch(topic, 0)
        assert whole.aborted_transactions is None
        plain = [record.value for record in recordcodec.read_all(bytes_of(whole)) if record.value]
        assert [bytes(value) for value in plain if len(value) == 1] == [b"a", b"b", b"c", b"d"]


async def test_marker_has_the_bytes_of_kafka(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        producer = await begun(client, topic, newer=False)
        await producer.send(topic, b"a")
        await producer.end(commit=True)
        answer = await client.fetch(topic, 1, isolation_level=COMMITTED)
    # A lone marker at the offset that was asked for is sent, or a reader would stick there.
    data = bytes_of(answer)
    [header] = batches.verify(data)
    [record] = recordcodec.read(data, header)
    assert (header.base_offset, header.size, header.record_count) == (1, 78, 1)
    assert header.attributes == batches.TRANSACTIONAL | batches.CONTROL
    assert (header.producer_id, header.producer_epoch) == (producer.id, producer.epoch)
    assert (header.base_sequence, header.partition_leader_epoch) == (-1, 0)
    assert (record.key, record.value) == (b"\0\0\0\1", bytes(6))
    assert recordcodec.control(record).type is ControlRecordType.COMMIT


async def test_an_open_transaction_holds_readers_back(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        early, late = [await begun(client, f"{topic}-{number}", newer=True) for number in (1, 2)]
        await early.send(topic, b"early")
        await late.send(topic, b"late")
        await late.end(commit=True)
        answer = await client.fetch(topic, 0, isolation_level=COMMITTED)
        assert (answer.last_stable_offset, answer.high_watermark) == (0, 3)
        assert not bytes_of(answer)
        assert (await client.fetch(topic, 0)).last_stable_offset == 0
        for level, end in ((0, 3), (1, 0)):
            [place] = await find(client, topic, LATEST, isolation_level=level)
            assert place.offset == end
        await early.end(commit=True)
        assert await committed(client, topic) == [b"early", b"late"]
        [place] = await find(client, topic, LATEST, isolation_level=1)
        assert place.offset == 4


async def test_lookup_by_time_ends_at_the_last_stable_offset(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client:
        await client.produce(topic, batch(b"plain", time_ms=1_700_000_000_000))
        producer = await begun(client, topic, newer=True)
        await producer.send(topic, b"open")
        offsets = []
        for level in (0, 1):
            [place] = await find(client, topic, 1_700_000_000_001, isolation_level=level)
            offsets.append(place.offset)
    assert offsets == [1, -1]


async def test_waiting_reader_is_woken_by_the_commit(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client, raw(served) as reader:
        producer = await begun(client, topic, newer=True)
        await producer.send(topic, b"a" * 5000)
        waiting = asyncio.create_task(
            reader.fetch(topic, 0, isolation_level=COMMITTED, max_wait_ms=15_000, min_bytes=4000)
        )
        await until_waiting(served, 1)
        await producer.end(commit=True)
        answer = await waiting
    assert len(batches.check_fetched(bytes_of(answer))) == 2


async def test_fetch_session_waits_idle_for_the_end_of_a_transaction(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client, raw(served) as reader:
        producer = await begun(client, topic, newer=True)
        await producer.send(topic, b"a")
        first = await reader.fetch_all({(topic, 0): 0}, session_epoch=0, isolation_level=COMMITTED)
        options: dict[str, Any] = {
            "session_id": first.session_id,
            "isolation_level": COMMITTED,
            "max_wait_ms": 15_000,
        }
        # The reader knows the end, and can read nothing: no fetch looks at the partition again.
        quiet = await reader.fetch_all({}, session_epoch=1, **options | {"max_wait_ms": 0})
        before = EXAMINED.value
        waiting = asyncio.create_task(reader.fetch_all({}, session_epoch=2, **options))
        await until_waiting(served, 1)
        assert (quiet.responses, EXAMINED.value) == ([], before)

        await producer.end(commit=True)
        answer = await asyncio.wait_for(waiting, 5)
    [part] = answer.responses[0].partitions
    assert len(batches.check_fetched(bytes_of(part))) == 2


# Refusals.


async def test_batches_outside_a_transaction_are_refused(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        producer = await begun(client, topic, newer=False)
        assert await producer.write(topic, b"a") is ErrorCode.INVALID_TXN_STATE
        aborts = await producer.write(topic, b"a", version=11)
        assert aborts is ErrorCode.TRANSACTION_ABORTABLE
        other = Transactor(client, "another", is_newer=True)
        other.id, other.epoch = producer.id, producer.epoch
        assert await other.write(topic, b"a") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await client.fetch(topic, 0)).high_watermark == 0


@NEWER
async def test_zombies_are_fenced(served: ServedBroker, topic: str, *, newer: bool) -> None:
    async with raw(served) as client:
        zombie = await begun(client, topic, newer=newer)
        await zombie.send(topic, b"left open")
        producer = await begun(client, topic, newer=newer)
        assert producer.id == zombie.id
        assert await zombie.write(topic, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.add(topic, 0) == [ErrorCode.PRODUCER_FENCED]
        assert (await zombie.end(commit=True)).error_code is ErrorCode.PRODUCER_FENCED
        old = await zombie.end(commit=True, version=1)
        assert old.error_code is ErrorCode.INVALID_PRODUCER_EPOCH
        await producer.send(topic, b"new")
        await producer.end(commit=True)
        assert await committed(client, topic) == [b"new"]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_transaction_timeout_is_bounded(
    served: ServedBroker, topic: str, timeout_ms: int
) -> None:
    async with raw(served) as client:
        answer = await Transactor(client, topic, is_newer=True).init(timeout_ms=timeout_ms)
    assert answer.error_code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_invalid_init_producer_id_requests_are_refused(served: ServedBroker) -> None:
    async with raw(served) as client:
        answer = await Transactor(client, "", is_newer=True).init()
        assert answer.error_code is ErrorCode.INVALID_REQUEST
        half = await Transactor(client, "half", is_newer=True).init(producer_id=5)
        assert half.error_code is ErrorCode.INVALID_REQUEST


async def test_unknown_partition_prevents_all_additions(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        producer = await begun(client, topic, newer=False)
        codes = await producer.add(topic, 0, 9)
        assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert (await producer.end(commit=True)).error_code is ErrorCode.INVALID_TXN_STATE


async def test_many_transactions_can_be_verified_in_one_request(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client:
        first, second = [await begun(client, f"{topic}-{at}", newer=False) for at in (1, 2)]

        def asked(producer: Transactor, *, verify: bool) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=producer.name,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                verify_only=verify,
                topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )

        for version, absent in (
            (4, ErrorCode.INVALID_TXN_STATE),
            (5, ErrorCode.TRANSACTION_ABORTABLE),
        ):
            request = AddPartitionsToTxnRequest(
                transactions=[asked(first, verify=False), asked(second, verify=True)]
            )
            answer = await client.ask(ADD_PARTITIONS_TO_TXN, version, request)
            codes = {
                result.transactional_id: part.partition_error_code
                for result in answer.results_by_transaction
                for each in result.topic_results
                for part in each.results_by_partition
            }
            assert codes == {first.name: NONE, second.name: absent}
        assert await first.write(topic, b"a") is NONE


# Offsets.


@NEWER
async def test_offsets_are_part_of_the_transaction(
    served: ServedBroker, topic: str, *, newer: bool
) -> None:
    group = f"group-of-{topic}"

    def stored() -> int | None:
        state = served.broker.replica.state
        kept = state.groups.by_id[group].offset(state.topics.by_name[topic].id, 0)
        return kept.offset if kept else None

    async with raw(served) as client:
        producer = await begun(client, topic, newer=newer)
        early = await producer.commit_offset(group, topic, 3)
        if not newer:
            assert early is ErrorCode.INVALID_TXN_STATE
            assert await producer.add_offsets(group) is NONE
            early = await producer.commit_offset(group, topic, 3)
        assert early is NONE
        assert stored() is None
        await producer.end(commit=True)
        assert stored() == 3
        if newer:
            await producer.commit_offset(group, topic, 9)
            await producer.end(commit=False)
            assert stored() == 3
        producer.epoch -= 1
        code = await producer.commit_offset(group, topic, 9)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
        # As in Kafka, of two faults that of the producer is reported.
        stranger: dict[str, Any] = {"member_id": "stranger", "generation_id": 1}
        code = await producer.commit_offset(group, topic, 9, **stranger)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
        producer.epoch += 1
        code = await producer.commit_offset(group, topic, 9, **stranger)
        assert code is ErrorCode.UNKNOWN_MEMBER_ID


# What tools ask.


async def test_transactions_are_described_and_listed(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        producer = await begun(client, topic, newer=True)
        await producer.send(topic, b"a", partition=1)
        asked = DescribeTransactionsRequest(transactional_ids=[topic, "nobody"])
        described, unknown = (await client.ask(DESCRIBE_TRANSACTIONS, 0, asked)).transaction_states
        assert unknown.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (described.transaction_state, described.producer_id) == ("Ongoing", producer.id)
        assert (described.topics[0].topic, described.topics[0].partitions) == (topic, [1])
        assert described.transaction_start_time_ms > 0

        async def listed(version: int = 2, **filters: object) -> list[str]:
            fields = {"state_filters": [], "producer_id_filters": []} | filters
            request = ListTransactionsRequest(**fields)  # type: ignore[arg-type] # of many types
            answer = await client.ask(LIST_TRANSACTIONS, version, request)
            return [state.transactional_id for state in answer.transaction_states]

        assert topic in await listed()
        assert topic in await listed(state_filters=["Ongoing"])
        assert topic not in await listed(state_filters=["Empty"])
        assert await listed(producer_id_filters=[producer.id]) == [topic]
        assert topic not in await listed(duration_filter=3_600_000)
        assert await listed(transactional_id_pattern=topic[:-1] + ".") == [topic]
        who = await client.ask(
            DESCRIBE_PRODUCERS,
            0,
            DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[1])]),
        )
        [state] = who.topics[0].partitions[0].active_producers
        assert state.current_txn_start_offset == 0
        await producer.end(commit=False)
        described = (await client.ask(DESCRIBE_TRANSACTIONS, 0, asked)).transaction_states[0]
        assert (described.transaction_state, described.topics) == ("CompleteAbort", [])


async def test_live_transaction_cannot_be_ended_by_others(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        producer = await begun(client, topic, newer=True)
        await producer.send(topic, b"a")
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    transaction_result=False,
                    coordinator_epoch=0,
                    topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 7])],
                )
            ]
        )
        answer = await client.ask(WRITE_TXN_MARKERS, 1, request)
        codes = [part.error_code for part in answer.markers[0].topics[0].partitions]
        assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        await producer.end(commit=True)
        assert await committed(client, topic) == [b"a"]


async def test_overdue_transaction_is_aborted(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        producer = Transactor(client, topic, is_newer=False)
        await producer.init(timeout_ms=1)
        await producer.send(topic, b"slow")
        await asyncio.to_thread(wait_until, lambda: not partition_of(served, topic).ongoing)
        assert await committed(client, topic) == []
        assert (await producer.end(commit=True)).error_code is ErrorCode.PRODUCER_FENCED
        assert (await client.fetch(topic, 0)).last_stable_offset == 2


# Independent of where the records are.


async def scramble(client: Raw, topic: str, seed: int, steps: int) -> list[bytes]:
    """Have producers write and end in any order; return what is committed, in the log's order."""
    random = Random(seed)
    producers = [
        await begun(client, f"{topic}-{at}", newer=random.random() < 0.5) for at in range(3)
    ]
    log: list[tuple[bytes, int]] = []
    fates: dict[int, bool] = {-1: True}
    open_: dict[int, int] = {}
    for step in range(steps):
        at = random.randrange(4)
        if at == 3:
            await client.produce(topic, batch(b"plain-%d" % step))
            log.append((b"plain-%d" % step, -1))
        elif at in open_ and random.random() < 0.3:
            commit = random.random() < 0.5
            assert (await producers[at].end(commit=commit)).error_code is NONE
            fates[open_.pop(at)] = commit
        else:
            value = b"%d" % step * random.choice((1, 1, 300))
            assert await producers[at].send(topic, value) is NONE
            log.append((value, open_.setdefault(at, step)))
    for at, transaction in open_.items():
        fates[transaction] = at % 2 == 0
        await producers[at].end(commit=fates[transaction])
    return [value for value, transaction in log if fates[transaction]]


@pytest.mark.parametrize(
    ("rewrite", "is_segment"),
    [
        (RewriteSettings(merge_age_ms=1, row_bytes=2000), False),
        (
            RewriteSettings(
                merge_age_ms=1, segment_bytes=6000, segment_min_bytes=1, segment_age_ms=1,
                index_interval_bytes=500,
            ),
            True,
        ),
    ],
    ids=["merged", "segments"],
)  # fmt: skip
async def test_same_records_are_read_from_memory_objects_and_segments(
    start: Start, rewrite: RewriteSettings, *, is_segment: bool
) -> None:
    broker = await asyncio.to_thread(start, upkeep_interval_ms=100_000, rewrite=rewrite)
    create(broker, "t")
    async with raw(broker) as client:
        truth = await scramble(client, "t", 5, 150)
        before = await everything(client)
        assert await committed(client, "t") == truth
        forget_tail(broker)
        assert await everything(client) == before

        async def rewritten() -> bool:
            await broker.broker.caretaker.round()
            rows = partition_of(broker, "t")
            return all(
                row.is_segment if is_segment else row.is_final
                for row in (rows.row(index) for index in range(len(rows.base_offsets)))
            )

        def tidy() -> bool:
            return broker.do(rewritten())

        await asyncio.to_thread(wait_until, tidy)
        forget_tail(broker)
        assert await everything(client) == before
        assert await committed(client, "t") == truth
        # Every beginning has the list of aborted transactions that it needs.
        for offset in range(0, len(truth), 7):
            some = await committed(client, "t", offset, partition_max_bytes=300)
            assert some == truth[len(truth) - len(some) :]


async def everything(client: Raw) -> bytes:
    records, offset = b"", 0
    while True:
        answer = await client.fetch("t", offset, partition_max_bytes=10_000_000)
        data = bytes_of(answer)
        if not data:
            assert offset == answer.high_watermark
            return records
        records += data
        offset = batches.check_fetched(data)[-1].last_offset + 1


async def test_transactions_survive_a_restart(tmp_path: Path) -> None:
    settings = BrokerSettings(durability="os", snapshot_entries=5, upkeep_interval_ms=100_000)
    with ServedBroker(tmp_path, settings) as first:
        create(first, "t")
        async with raw(first) as client:
            producer = await begun(client, "x", newer=True)
            await producer.send("t", b"a")
            await producer.end(commit=False)
            await producer.send("t", b"b")
            before = await everything(client)
        first.do(first.broker.caretaker.round())
    with ServedBroker(tmp_path, settings) as second:
        async with raw(second) as client:
            assert await everything(client) == before
            assert await committed(client, "t") == []
            producer.client = client
            await producer.send("t", b"c")
            await producer.end(commit=True)
            assert await committed(client, "t") == [b"b", b"c"]


async def test_transactions_can_be_continued_on_any_broker(start: Start) -> None:
    brokers = [await asyncio.to_thread(start) for _ in range(2)]
    create(brokers[0], "t")
    async with raw(brokers[0]) as first, raw(brokers[1]) as second:
        producers = [await begun(first, "x", newer=True), await begun(second, "y", newer=False)]
        for number in range(6):
            # Each says everything to another broker than the last time.
            for at, producer in enumerate(producers):
                producer.client = (first, second)[(number + at) % 2]
                assert await producer.send("t", b"%d-%d" % (number, at)) is NONE
            for at, producer in enumerate(producers):
                producer.client = (first, second)[(number + at + 1) % 2]
                assert (await producer.end(commit=number % 2 == at)).error_code is NONE
        logs = [await everything(first), await everything(second)]
        assert logs[0] == logs[1]
        for client in (first, second):
            expected = [b"0-0", b"1-1", b"2-0", b"3-1", b"4-0", b"5-1"]
            assert await committed(client, "t", partition_max_bytes=200) == expected


@pytest.mark.parametrize(("level", "code"), [(2, NONE), (1, ErrorCode.INVALID_UPDATE_VERSION)])
async def test_update_of_transaction_version_keeps_our_feature_level(
    served: ServedBroker, level: int, code: ErrorCode
) -> None:
    update = FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=1
    )
    async with raw(served) as client:
        answer = await client.ask(
            UPDATE_FEATURES, 2, UpdateFeaturesRequest(feature_updates=[update])
        )
    assert answer.error_code is code
    assert served.broker.replica.state.feature_level == FEATURE_LEVEL


async def test_unreachable_log_is_a_retriable_error_for_producers(start: Start) -> None:
    broker = start()
    create(broker, "t")

    async def wrap() -> FaultyLog:
        follower = broker.broker.replica._follower
        log = follower.log = FaultyLog(follower.log)
        return log

    async with raw(broker) as client:
        producer = await begun(client, "x", newer=False)
        log = broker.do(wrap())
        log.cut()
        asked = AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        verify = AddPartitionsToTxnRequest(transactions=[asked])
        [verified] = (await client.ask(ADD_PARTITIONS_TO_TXN, 5, verify)).results_by_transaction
        codes = [
            *(await producer.add("unknown", 0)),
            verified.topic_results[0].results_by_partition[0].partition_error_code,
            await producer.commit_offset("g", "unknown", 1),
        ]
        without_id = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = await client.ask(INIT_PRODUCER_ID, 4, without_id)
        log.mend()

    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    # As Kafka answers while it waits for a block of ids: a producer without a transactional id
    # has no coordinator that it could look for.
    assert answer.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
