"""Pins prevent compaction, and Kafka's tools show published offsets."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from rookery.clock import SystemClock, Time
from rookery.cluster.events.brokerevents import SettingChange
from rookery.cluster.events.topicevents import TopicCreated
from rookery.direct.groupoffsets import publish_offsets
from rookery.direct.pins import Pins
from rookery.errors import ApiError
from rookery.testing.wait import wait_until
from rookery.wire.message import Message
from tests.direct.logs import (
    COMPACT,
    Cluster,
    create,
    partitions_of,
    planned,
    read,
    read_all,
    send,
    values,
)


def test_pinned_batch_is_read_again_unchanged_and_then_compacted(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        create(broker, "plain")
        send(broker, "t", values(500))
    with cluster.log as log:
        before = planned(log)
        first = read(cluster.place, before)
        pins = Pins(log.log, 3_600_000)
        log.run(pins.hold([topic.id for topic in log.log.state.topics]))
        topics = log.log.state.topics.by_name
        assert topics["t"].pins
        assert not topics["plain"].pins
        with cluster.rewriting(**COMPACT) as broker:
            wait_until(lambda: all(kind & 4 for kind in partitions_of(broker, "t")[0].kinds))
            assert partitions_of(broker, "t")[0].cleaned_to == 0
            assert read(cluster.place, before) == first
            log.run(pins.release())
            wait_until(lambda: partitions_of(broker, "t")[0].cleaned_to > 400)
    assert len(read_all(cluster)) < 100


def test_advancing_reader_pins_only_its_current_batch(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        send(broker, "t", values(600), each=50)
    with cluster.log as log:
        before = planned(log)
        first = read(cluster.place, before)
        [topic] = log.log.state.topics
        held = [part for part in first if part.offset >= 350]
        pins = Pins(log.log, 3_600_000)
        log.run(pins.hold_from({(topic.id, 0): 350}))
        with cluster.rewriting(**COMPACT) as broker:
            wait_until(lambda: partitions_of(broker, "t")[0].cleaned_to > 0)
            # Never again is all of it compacted while the batch may be read again.
            wait_until(lambda: all(kind & 4 for kind in partitions_of(broker, "t")[0].kinds))
            assert 0 < partitions_of(broker, "t")[0].cleaned_to <= 350
            now = read_all(cluster)
            assert [part for part in now if part.offset >= 350] == held
            assert len(now) < len(first)
            # The next batch: what was held so far is compacted.
            log.run(log.log.barrier())
            log.run(Pins(log.log, 3_600_000).hold_from({(topic.id, 0): 600}))
            log.run(pins.release())
            wait_until(lambda: partitions_of(broker, "t")[0].cleaned_to == 600)


def test_pin_is_renewed_in_time(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", cleanup_policy="compact", partitions=2)
        send(broker, "t", values(10))
    with cluster.log as log:
        [topic] = log.log.state.topics
        clock = log.log.clock = MovedClock()
        pins = Pins(log.log, 3_600_000)

        def held() -> list[dict[int, int]]:
            log.run(log.log.barrier())
            return [dict(pin.starts) for pin in topic.pins.values()]

        log.run(pins.hold_from({(topic.id, 0): 5}))
        assert held() == [{0: 5}]
        log.run(pins.hold_from({(topic.id, 0): 6}))
        assert held() == [{0: 5}]  # it covers that as well, and was said just now
        log.run(pins.hold_from({(topic.id, 0): 6, (topic.id, 1): 0}))
        assert held() == [{0: 6, 1: 0}]
        log.run(pins.hold_from({(topic.id, 0): 4, (topic.id, 1): 0}))
        assert held() == [{0: 4, 1: 0}]
        clock.ahead_ms = 10_000
        log.run(pins.hold_from({(topic.id, 0): 9}))
        assert held() == [{0: 9}]
        assert not pins.have_lapsed()
        clock.ahead_ms += 3_600_000
        assert pins.have_lapsed()
        log.run(pins.hold_from({(topic.id, 0): 9}))
        assert not pins.have_lapsed()
        log.run(pins.release())
        assert held() == []


def test_topics_that_exceed_one_entry_are_all_pinned(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker():
        pass
    compacted = [SettingChange(name="cleanup.policy", value="compact")]
    topics: list[Message] = [
        TopicCreated(
            topic_id=number.to_bytes(16, "big"),
            name=f"t{number}",
            partitions=1,
            replication_factor=1,
            configs=compacted,
        )
        for number in range(1, 4_001)
    ]
    with cluster.log as log:
        log.run(log.log.propose_all(topics))
        pins = Pins(log.log, 3_600_000)
        log.run(pins.hold([topic.id for topic in log.log.state.topics]))
        assert sum(bool(topic.pins) for topic in log.log.state.topics) == len(topics)
        log.run(pins.release())
        assert not any(topic.pins for topic in log.log.state.topics)


class MovedClock(SystemClock):
    """The time, and more of it."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> Time:
        return Time(super().now_ms() + self.ahead_ms)


def test_published_offsets_are_those_of_a_group(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker, cluster.log as log:
        send(broker, "t", values(10))
        log.run(log.log.barrier())
        [topic] = log.log.state.topics
        log.run(publish_offsets(log.log, "spark", {(topic.id, 0): 4}))
        log.run(publish_offsets(log.log, "spark", {(topic.id, 0): 7}))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        asked = ConsumerGroupTopicPartitions("spark")
        [future] = admin.list_consumer_group_offsets([asked]).values()
        [commit] = future.result(30).topic_partitions
        assert (commit.topic, commit.partition, commit.offset) == ("t", 0, 7)
        [described] = admin.describe_consumer_groups(["spark"]).values()
        assert described.result(30).state.name == "EMPTY"


def test_group_with_members_is_not_committed_for(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker, cluster.log as log:
        send(broker, "t", values(10))
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        wait_until(lambda: consumer.poll(1))
        log.run(log.log.barrier())
        [topic] = log.log.state.topics
        with pytest.raises(ApiError, match="has members"):
            log.run(publish_offsets(log.log, "g", {(topic.id, 0): 4}))
        consumer.close()
