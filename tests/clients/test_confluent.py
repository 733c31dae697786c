"""librdkafka by way of confluent-kafka: every codec, admin, and old versions."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from rookery.testing.wait import wait_until
from tests.clients.peers import (
    BOTH,
    CODECS,
    new_topic,
    stored_codecs,
)
from tests.proxies import Proxies

COUNT = 1_000
SECONDS = 30


def _produce(bootstrap: str, topic: str, count: int, **settings: object) -> list[Message]:
    stored: list[Message] = []

    def on_delivery(error: object, message: Message) -> None:
        assert error is None, error
        stored.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, **_dotted(settings)})
    for number in range(count):
        producer.produce(
            topic,
            value=b"value %d" % number,
            key=b"key %d" % (number % 10),
            headers=[("number", b"%d" % number)],
            timestamp=1_700_000_000_000 + number,
            on_delivery=on_delivery,
        )
    assert producer.flush(SECONDS) == 0
    return stored


def _consume(bootstrap: str, topic: str, partitions: int, **settings: object) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **_dotted(settings),
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    messages, left = list[Message](), set(range(partitions))
    try:
        while left:
            message = consumer.poll(SECONDS)
            assert message is not None, "nothing came"
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                assert error.name() == "_PARTITION_EOF", error
                left.discard(message.partition())
    finally:
        consumer.close()
    return messages


def _dotted(settings: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotence", [True, False])
def test_produced_records_are_consumed(bootstrap: str, codec: str, idempotence: bool) -> None:
    topic = new_topic(bootstrap, partitions=3)

    stored = _produce(
        bootstrap, topic, COUNT, compression_type=codec, enable_idempotence=idempotence
    )

    messages = _consume(bootstrap, topic, 3)
    assert len(messages) == COUNT
    assert {_row(message) for message in messages} == {_row(message) for message in stored}
    assert all(message.headers() == [("number", _digits(message))] for message in messages)
    for partition in range(3):
        numbers = [_number(message) for message in messages if message.partition() == partition]
        assert numbers == sorted(numbers)


def _row(message: Message) -> tuple[object, ...]:
    return (message.partition(), message.offset(), message.key(), message.value())


def _digits(message: Message) -> bytes:
    return (message.value() or b"").split()[1]


def _number(message: Message) -> int:
    number = int(_digits(message))
    assert message.timestamp()[1] == 1_700_000_000_000 + number
    return number


@pytest.mark.parametrize("codec", CODECS)
def test_stored_batches_keep_the_codec_of_the_producer(bootstrap: str, codec: str) -> None:
    topic = new_topic(bootstrap)

    _produce(bootstrap, topic, COUNT, compression_type=codec, linger_ms=100)

    assert stored_codecs(bootstrap, topic) == {codec}


def test_old_protocol_versions_work(bootstrap: str) -> None:
    """As librdkafka speaks to a broker that it takes for Kafka 0.11."""
    topic = new_topic(bootstrap)
    old = {"api_version_request": False, "broker_version_fallback": "0.11.0.0"}

    _produce(bootstrap, topic, 100, **old)

    assert len(_consume(bootstrap, topic, 1, **old)) == 100


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_level_of_acknowledgement_works(bootstrap: str, acks: object) -> None:
    topic = new_topic(bootstrap)

    _produce(bootstrap, topic, 100, acks=acks)

    assert len(_consume(bootstrap, topic, 1)) == 100


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_read_committed_hides_aborted_records(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    _produce(bootstrap, topic, 100)

    assert len(_consume(bootstrap, topic, 1, isolation_level="read_committed")) == 100


def _done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(SECONDS) for future in futures.values()]


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_topics_are_administered(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = "confluent-admin"
    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        ],
    )

    _done(admin.create_topics([NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})]))
    _done(admin.create_partitions([NewPartitions(name, 4)]))
    _done(admin.incremental_alter_configs([resource]))

    def config(key: str) -> str:
        (configs,) = _done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
        return str(configs[key].value)

    wait_until(lambda: config("retention.ms") == "1000")
    assert config("cleanup.policy") == "compact"
    wait_until(lambda: len(admin.list_topics(timeout=SECONDS).topics[name].partitions) == 4)
    _done(admin.delete_topics([name]))
    wait_until(lambda: name not in admin.list_topics(timeout=SECONDS).topics)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        _done(admin.delete_topics([name]))


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_offsets_are_listed_and_records_deleted(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    _produce(bootstrap, topic, 10)
    admin, place = AdminClient({"bootstrap.servers": bootstrap}), TopicPartition(topic, 0)

    specs: Any = OffsetSpec  # its types are incomplete

    def offset(spec: OffsetSpec) -> int:
        (listed,) = _done(admin.list_offsets({place: spec}))
        return int(listed.offset)

    assert (offset(specs.earliest()), offset(specs.latest())) == (0, 10)
    assert offset(specs.for_timestamp(1_700_000_000_004)) == 4
    assert offset(specs.max_timestamp()) == 9
    (deleted,) = _done(admin.delete_records([TopicPartition(topic, 0, 6)]))
    assert deleted.low_watermark == 6
    assert offset(specs.earliest()) == 6


@pytest.mark.parametrize("bootstrap", BOTH, indirect=True)
def test_the_cluster_is_described(bootstrap: str, proxies: Proxies) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    cluster = admin.describe_cluster().result(SECONDS)

    addresses = [f"{node.host}:{node.port}" for node in cluster.nodes]
    assert addresses == proxies.brokers(bootstrap)
    assert cluster.cluster_id


def test_topic_is_created_automatically(bootstrap: str) -> None:
    _produce(bootstrap, "confluent-by-use", 10)

    assert len(_consume(bootstrap, "confluent-by-use", 1)) == 10
