"""kafka-python, with old and new versions of the protocol."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

from rookery.testing.wait import wait_until
from tests.clients.peers import BOTH, CODECS, new_topic, stored_codecs
from tests.kafkapython import KafkaAdminClient, KafkaConsumer, KafkaProducer

COUNT = 500
Version = tuple[int, int] | None
# What kafka-python takes the broker for; None: what the broker says of itself.
CASES = [
    (codec, version)
    for codec in CODECS
    for version in (None, (1, 0), (2, 4), (3, 9))
    # Kafka 1.0 had no zstd, so kafka-python refuses.
    if (codec, version) != ("zstd", (1, 0))
]


def _codec(name: str) -> str | None:
    return None if name == "none" else name


def _produce(bootstrap: str, topic: str, codec: str, version: Version) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=_codec(codec),
        api_version=version,
        linger_ms=5,
        acks="all",
    )
    futures = [
        producer.send(
            topic,
            value=b"value %d" % number,
            key=b"key",
            headers=[("number", b"%d" % number)],
            timestamp_ms=1_700_000_000_000 + number,
        )
        for number in range(COUNT)
    ]
    producer.flush(30)
    assert [future.get(30).offset for future in futures] == list(range(COUNT))
    producer.close(10)


def _consume(bootstrap: str, topic: str, version: Version) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, api_version=version, group_id=None)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end, records = consumer.end_offsets([place])[place], list[Any]()
    while len(records) < end:
        got = consumer.poll(timeout_ms=30_000)
        assert got, "nothing came"
        records.extend(got[place])
    consumer.close()
    return records


@pytest.mark.parametrize(("codec", "version"), CASES)
def test_produced_records_are_consumed(bootstrap: str, codec: str, version: Version) -> None:
    topic = new_topic(bootstrap)

    _produce(bootstrap, topic, codec, version)

    rows = _consume(bootstrap, topic, version)
    assert [row.value for row in rows] == [b"value %d" % number for number in range(COUNT)]
    assert [row.timestamp for row in rows] == [1_700_000_000_000 + n for n in range(COUNT)]
    assert [list(row.headers) for row in rows[:2]] == [[("number", b"0")], [("number", b"1")]]
    # A batch that compression would make larger is sent as it is.
    assert codec in stored_codecs(bootstrap, topic) <= {codec, "none"}


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_offsets_are_found_by_time(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    _produce(bootstrap, topic, "none", None)
    consumer, place = KafkaConsumer(bootstrap_servers=bootstrap), TopicPartition(topic, 0)

    first = consumer.offsets_for_times({place: 1_700_000_000_100})[place]

    assert (first.offset, first.timestamp) == (100, 1_700_000_000_100)
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: COUNT}
    consumer.close()


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_topics_are_administered(bootstrap: str) -> None:
    name = "kafka-python-admin"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    admin.create_partitions({name: NewPartitions(total_count=4)})
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "1000"})])

    wait_until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 4)
    assert name in admin.list_topics()
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    wait_until(lambda: "1000" in str(admin.describe_configs([resource])))
    admin.delete_topics([name])
    admin.close()


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_records_are_deleted(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    _produce(bootstrap, topic, "none", None)
    admin, place = KafkaAdminClient(bootstrap_servers=bootstrap), TopicPartition(topic, 0)

    admin.delete_records({place: 100})

    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    assert consumer.beginning_offsets([place]) == {place: 100}
    consumer.close()
    admin.close()
