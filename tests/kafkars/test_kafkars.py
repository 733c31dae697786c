"""kafkars' interface: order, liveness and the stated outcomes, on a real Kafka."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from rookery import kafkars
from rookery.client import Client
from rookery.client.librdkafka import client_settings
from rookery.client.settings import ClientSettings
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.kafkars import (
    MESSAGE_SCHEMA,
    PARTITION_STATE_SCHEMA,
    ConsumerManager,
    SourceTopic,
    manager,
)
from rookery.model.partition import TopicPartition as Place
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.kafkaproxy import KafkaProxy
from rookery.testing.wait import wait_until
from tests.consumer.hard.transactions import transact

WITHIN = 90.0


@pytest.fixture
def logs(kafka: KafkaServer) -> Iterator[Logs]:
    with Logs(kafka.bootstrap) as made:
        yield made


@pytest.fixture
def topic(logs: Logs) -> str:
    """Two partitions, whose rows take turns."""
    name = logs.create("kafkars", 2)
    for partition in range(2):
        times = [NOON + 2 * n + partition for n in range(3000)]
        logs.write(name, partition, rows(times), size=300)
    return name


def drain(manager: ConsumerManager, timeout_ms: int = 100) -> pa.Table:
    """Poll until it is live."""
    batches = []

    def is_live() -> bool:
        if not manager.is_live():
            batches.append(manager.poll(timeout_ms))
        return manager.is_live()

    wait_until(is_live, seconds=WITHIN, pause=0)
    return pa.Table.from_batches(batches, MESSAGE_SCHEMA)


def times_of(table: pa.Table) -> list[Any]:
    """Return the times of rows in milliseconds."""
    return list(table.column("timestamp").cast(pa.int64()).to_pylist())


def test_rows_come_in_the_order_of_time(logs: Logs, topic: str) -> None:
    sources = [SourceTopic.from_earliest(topic)]
    with ConsumerManager({"bootstrap.servers": logs.bootstrap}, sources, 1000) as manager:
        batches = []
        while not manager.is_live():
            batches.append(manager.poll(1000))
        held, state = manager.held_message_count(), manager.partition_state()

    table = pa.Table.from_batches(batches)
    assert table.schema == MESSAGE_SCHEMA
    assert max(batch.num_rows for batch in batches) <= 1000
    assert times_of(table) == [NOON + n for n in range(6000)]
    assert held == 0
    assert state.schema == PARTITION_STATE_SCHEMA
    assert state.column("released_offset").to_pylist() == [3000, 3000]
    assert state.column("is_live").to_pylist() == [True, True]


def test_columns_equal_those_of_kafkarrow() -> None:
    kafkarrow = pytest.importorskip("kafkarrow", reason="a peer of the benchmark only")

    assert kafkarrow.MESSAGE_SCHEMA == MESSAGE_SCHEMA == kafkars.get_message_schema()
    assert kafkarrow.PARTITION_STATE_SCHEMA == PARTITION_STATE_SCHEMA
    assert kafkars.get_partition_state_schema() == PARTITION_STATE_SCHEMA


def test_names_and_positions_equal_those_of_kafkarrow() -> None:
    kafkarrow = pytest.importorskip("kafkarrow", reason="a peer of the benchmark only")

    assert set(kafkarrow.__all__) <= set(kafkars.__all__)
    for name in ("ConsumerManager", "SourceTopic"):
        public = {member for member in dir(getattr(kafkarrow, name)) if member[0] != "_"}
        assert public <= set(dir(getattr(kafkars, name)))
    ours = list(inspect.signature(ConsumerManager).parameters.values())
    theirs = list(inspect.signature(kafkarrow.ConsumerManager).parameters.values())
    assert [parameter.name for parameter in ours[: len(theirs)]] == [
        parameter.name for parameter in theirs
    ]
    assert ours[2].default is theirs[2].default is None
    assert all(
        parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in ours[len(theirs) :]
    )


@pytest.mark.parametrize(
    ("policy", "time_ms"),
    [("latest", None), ("earliest", 5), ("relative_time", None), ("absolute_time", 1), ("x", None)],
)
def test_topics_of_kafkarrow_are_validated_alike(policy: str, time_ms: int | None) -> None:
    kafkarrow = pytest.importorskip("kafkarrow", reason="a peer of the benchmark only")
    topic = kafkarrow.SourceTopic("t", policy, time_ms)

    def refusal(validate: Callable[[Any], None]) -> type[Exception] | None:
        try:
            validate(topic)
        except ValueError:
            return ValueError
        return None

    assert refusal(kafkars.validate_source_topic) is refusal(kafkarrow.validate_source_topic)


def test_topics_of_kafkarrow_are_read(logs: Logs, topic: str) -> None:
    kafkarrow = pytest.importorskip("kafkarrow", reason="a peer of the benchmark only")
    sources = [kafkarrow.SourceTopic.from_earliest(topic)]
    with ConsumerManager({"bootstrap.servers": logs.bootstrap}, sources, 1000) as manager:
        assert drain(manager).num_rows == 6000


def test_manager_is_live_only_after_all_rows_were_returned(logs: Logs, topic: str) -> None:
    sources = [SourceTopic.from_earliest(topic)]
    with ConsumerManager({"bootstrap.servers": logs.bootstrap}, sources, 100) as manager:
        seen = 0
        while seen < 6000:
            assert not manager.is_live()
            seen += manager.poll(1000).num_rows

        assert manager.is_live()
        assert manager.poll(0).num_rows == 0


def test_cutoff_makes_the_manager_live_earlier_and_changes_no_row(logs: Logs, topic: str) -> None:
    sources = [SourceTopic.from_earliest(topic)]
    cutoff = NOON + 3000
    with ConsumerManager(
        {"bootstrap.servers": logs.bootstrap}, sources, 500, cutoff_ms=cutoff
    ) as manager:
        first = drain(manager)
        rest: list[pa.RecordBatch] = []

        def count() -> int:
            rest.append(manager.poll(100))
            return first.num_rows + sum(batch.num_rows for batch in rest)

        wait_until(count, "rows", accepts=lambda rows: rows >= 6000, seconds=WITHIN, pause=0)

    table = pa.Table.from_batches([*first.to_batches(), *rest])
    times = times_of(table)
    assert times == [NOON + n for n in range(6000)]
    # It was live with the first batch that reaches the cutoff, not before and not much later.
    assert cutoff - NOON < first.num_rows <= cutoff - NOON + 500


def test_slow_partition_is_awaited(logs: Logs, topic: str) -> None:
    with KafkaProxy(logs.bootstrap) as proxy:
        proxy.rtt_ms[proxy.nodes[0]] = (0.0, 200.0)
        sources = [SourceTopic.from_earliest(topic)]
        with ConsumerManager({"bootstrap.servers": proxy.bootstrap}, sources) as manager:
            table = drain(manager, timeout_ms=1)

    times = times_of(table)
    assert times == sorted(times)
    assert len(times) == 6000


def test_poll_returns_rows_before_its_timeout(logs: Logs, topic: str) -> None:
    sources = [SourceTopic.from_earliest(topic)]
    with ConsumerManager({"bootstrap.servers": logs.bootstrap}, sources, 1000) as manager:
        # A poll that waited for its whole time would be over after the test's own time.
        table = drain(manager, timeout_ms=3_600_000)

    assert table.num_rows == 6000


def test_later_rows_are_returned(logs: Logs, topic: str) -> None:
    sources = [SourceTopic.from_latest(topic)]
    with ConsumerManager({"bootstrap.servers": logs.bootstrap}, sources) as manager:
        assert manager.is_live()
        logs.write(topic, 0, rows([NOON + 9000]))
        logs.write(topic, 1, rows([NOON + 8000]))
        partitions: list[Any] = []

        def poll() -> list[Any]:
            partitions.extend(manager.poll(100).column("partition").to_pylist())
            return partitions

        wait_until(poll, "rows", accepts=lambda rows: len(rows) >= 2, seconds=WITHIN, pause=0)

    assert sorted(partitions) == [0, 1]


def _commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    async def commit() -> None:
        async with Client(bootstrap) as client:
            await client.groups.commit_offsets(group, {Place(topic, 0): offset})

    asyncio.run(commit())


def _committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, number) for number in range(2)]
    offsets = [place.offset for place in consumer.committed(places, 60)]
    consumer.close()
    return offsets


def test_reading_starts_at_the_commit_or_at_the_beginning(logs: Logs, topic: str) -> None:
    group = f"group-{topic}"
    _commit(logs.bootstrap, group, topic, 2990)
    config = {"bootstrap.servers": logs.bootstrap, "group.id": group}
    with ConsumerManager(config, [SourceTopic.from_committed(topic)]) as manager:
        table = drain(manager)
        # While it is open, the group has no member.
        admin = AdminClient({"bootstrap.servers": logs.bootstrap})
        members = admin.describe_consumer_groups([group])[group].result(60).members

    partitions = table.column("partition").to_pylist()
    assert (partitions.count(0), partitions.count(1)) == (10, 3000)
    # It has read everything, and neither joined nor committed.
    assert members == []
    assert _committed(logs.bootstrap, group, topic) == [2990, -1001]


def test_manager_never_commits(logs: Logs, topic: str) -> None:
    group = f"silent-{topic}"
    config = {"bootstrap.servers": logs.bootstrap, "group.id": group}
    with ConsumerManager(config, [SourceTopic.from_earliest(topic)]) as manager:
        drain(manager)

    assert _committed(logs.bootstrap, group, topic) == [-1001, -1001]


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (lambda name: SourceTopic.from_absolute_time(name, NOON + 5990), 10),
        (lambda name: SourceTopic.from_absolute_time(name, NOON + 1_000_000), 0),
        (lambda name: SourceTopic.from_relative_time(name, 1), 0),
        (lambda name: SourceTopic.from_relative_time(name, 10**13), 6000),
        (SourceTopic.from_latest, 0),
        (lambda name: {"name": name, "policy": "earliest"}, 6000),
    ],
)
def test_every_start_position_is_supported(logs: Logs, topic: str, source: Any, count: int) -> None:
    config = {"bootstrap.servers": logs.bootstrap}
    with ConsumerManager(config, [source(topic)]) as manager:
        assert drain(manager).num_rows == count
        assert manager.is_live()


def test_unknown_topic_is_refused(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(config: Mapping[str, object]) -> ClientSettings:
        return replace(client_settings(config), unknown_topic_ms=300)

    monkeypatch.setattr(manager, "client_settings", hasty)
    with pytest.raises(ApiError) as caught:
        ConsumerManager(
            {"bootstrap.servers": logs.bootstrap}, [SourceTopic.from_earliest("no-such-topic")]
        )

    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "no-such-topic" in str(caught.value)


def test_a_topic_without_records_is_live_at_once(logs: Logs) -> None:
    empty = logs.create("empty", 3)
    config = {"bootstrap.servers": logs.bootstrap}
    with ConsumerManager(config, [SourceTopic.from_earliest(empty)]) as manager:
        assert manager.is_live()
        assert manager.poll(0).num_rows == 0


def test_topic_named_twice_is_refused(logs: Logs, topic: str) -> None:
    sources = [SourceTopic.from_earliest(topic), SourceTopic.from_latest(topic)]
    with pytest.raises(ConfigError, match=f"{topic} is named twice"):
        ConsumerManager({"bootstrap.servers": logs.bootstrap}, sources)


def test_empty_list_of_topics_is_refused(logs: Logs) -> None:
    with pytest.raises(ConfigError, match="topics: name one"):
        ConsumerManager({"bootstrap.servers": logs.bootstrap}, [])


def test_log_that_ends_with_a_marker_reaches_its_end(logs: Logs) -> None:
    topic = logs.create("marked", 1)
    transact(logs.bootstrap, (topic, 0), 10, "commit")

    with ConsumerManager(
        {"bootstrap.servers": logs.bootstrap}, [SourceTopic.from_earliest(topic)]
    ) as manager:
        assert drain(manager).num_rows == 10


def test_decreasing_timestamps_keep_the_offset_order(logs: Logs) -> None:
    topic = logs.create("disorder", 1)
    logs.write(topic, 0, rows([NOON + 1000 * n for n in (5, 1, 3, 2, 4)]))

    with ConsumerManager(
        {"bootstrap.servers": logs.bootstrap}, [SourceTopic.from_earliest(topic)]
    ) as manager:
        table = drain(manager)

    assert table.column("offset").to_pylist() == [0, 1, 2, 3, 4]


def test_state_of_partitions_is_reported(logs: Logs, topic: str) -> None:
    sources = [SourceTopic.from_absolute_time(topic, NOON + 1000)]
    with ConsumerManager({"bootstrap.servers": logs.bootstrap}, sources, 100) as manager:
        assert manager.low_water_mark() is None
        first = manager.poll(60_000)
        lower, upper = manager.partitions()
        mark = manager.low_water_mark()

        assert first.num_rows <= 100
        assert (lower.topic, lower.partition, upper.partition) == (topic, 0, 1)
        assert (lower.replay_start_offset, lower.replay_end_offset) == (500, 3000)
        assert lower.released_offset + upper.released_offset == 1000 + first.num_rows
        assert lower.consumed_offset >= lower.released_offset
        assert not lower.is_live
        assert mark is not None
        assert mark >= NOON + 1000
        assert manager.get_priming_watermark() == mark
        assert manager.held_message_count() == lower.held + upper.held
        assert manager.paused_partition_count() == lower.is_paused + upper.is_paused
