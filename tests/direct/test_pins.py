"""Pins keep compaction off, and published offsets are shown by Kafka's tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from rookery.direct.grouped import publish
from rookery.direct.pins import Pins
from rookery.errors import ApiError
from tests.direct.logs import (
    COMPACT,
    Cluster,
    create,
    partitions_of,
    planned,
    read,
    read_all,
    send,
    until,
    values,
)


def test_a_pinned_batch_is_read_again_the_same_and_then_compacted(tmp_path: Path) -> None:
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
            until(lambda: all(kind & 4 for kind in partitions_of(broker, "t")[0].kinds))
            assert partitions_of(broker, "t")[0].cleaned_to == 0
            assert read(cluster.place, before) == first
            log.run(pins.release())
            until(lambda: partitions_of(broker, "t")[0].cleaned_to > 400)
    assert len(read_all(cluster)) < 100


def test_published_offsets_are_a_groups(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker, cluster.log as log:
        send(broker, "t", values(10))
        log.run(log.log.barrier())
        [topic] = log.log.state.topics
        log.run(publish(log.log, "spark", {(topic.id, 0): 4}))
        log.run(publish(log.log, "spark", {(topic.id, 0): 7}))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        asked = ConsumerGroupTopicPartitions("spark")
        [future] = admin.list_consumer_group_offsets([asked]).values()
        [found] = future.result(30).topic_partitions
        assert (found.topic, found.partition, found.offset) == ("t", 0, 7)
        [described] = admin.describe_consumer_groups(["spark"]).values()
        assert described.result(30).state.name == "EMPTY"


def test_a_group_with_members_commits_for_itself(tmp_path: Path) -> None:
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
        until(lambda: consumer.poll(1))
        log.run(log.log.barrier())
        [topic] = log.log.state.topics
        with pytest.raises(ApiError, match="has members"):
            log.run(publish(log.log, "g", {(topic.id, 0): 4}))
        consumer.close()
