"""Real clients use virtual partitions of Apache Kafka as those of a topic of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from rookery.testing.kafka import KafkaServer
from rookery.testing.servedproxy import ServedProxy
from tests.proxy.virtual.conftest import V, create

ROUNDS = 15
COUNT = ROUNDS * V


@pytest.fixture
def place(proxy: ServedProxy, topic: str) -> tuple[str, str]:
    """Where clients connect, and the topic."""
    return proxy.bootstrap, topic


def produce(
    bootstrap: str, topic: str, first: int, *, is_idempotent: bool
) -> list[tuple[int, int]]:
    """Write COUNT numbers, partition after partition; return where each was put."""
    places: dict[int, tuple[int, int]] = {}

    def note(error: object, message: Message) -> None:
        assert error is None
        places[int(message.value() or b"")] = message.partition() or 0, message.offset() or 0

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": is_idempotent, "linger.ms": 5}
    )
    for number in range(first, first + COUNT):
        producer.produce(topic, b"%d" % number, partition=number % V, on_delivery=note)
    assert producer.flush(20) == 0
    return [places[number] for number in range(first, first + COUNT)]


def read(consumer: Consumer, count: int) -> Iterator[Message]:
    for _ in range(count):
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        yield message


def consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def test_a_group_reads_everything_once_in_order_and_resumes(place: tuple[str, str]) -> None:
    bootstrap, topic = place
    partitions = [TopicPartition(topic, number) for number in range(V)]

    plain = produce(bootstrap, topic, 0, is_idempotent=False)
    coded = produce(bootstrap, topic, COUNT, is_idempotent=True)
    assert plain == [(number % V, number // V) for number in range(COUNT)]
    assert coded == [(number % V, ROUNDS + number // V) for number in range(COUNT)]

    with closing(consumer(bootstrap, topic)) as first:
        first.subscribe([topic])
        got = [
            (each.partition(), each.offset(), int(each.value() or b""))
            for each in read(first, 2 * COUNT)
        ]
        for partition in range(V):
            assert [row[1:] for row in got if row[0] == partition] == [
                (number // V, number) for number in range(partition, 2 * COUNT, V)
            ]
        # Each partition is committed on its own, some not at all.
        offsets = [TopicPartition(topic, number, number + 1) for number in range(V - 2)]
        assert all(each.error is None for each in first.commit(offsets=offsets, asynchronous=False))
        assert first.get_watermark_offsets(partitions[3], timeout=20) == (0, 2 * ROUNDS)

    with closing(consumer(bootstrap, topic)) as second:
        committed = [each.offset for each in second.committed(partitions, timeout=20)]
        assert committed == [*range(1, V - 1), -1001, -1001]
        second.assign(partitions)
        rest = 2 * COUNT - sum(range(1, V - 1))
        starts: dict[int, int] = {}
        for each in read(second, rest):
            starts.setdefault(each.partition() or 0, each.offset() or 0)
        assert starts == {number: max(0, committed[number]) for number in range(V)}


def test_the_end_of_a_partition_is_found(place: tuple[str, str]) -> None:
    bootstrap, topic = place
    produce(bootstrap, topic, 0, is_idempotent=True)

    with closing(consumer(bootstrap, topic)) as reader:
        marks = [
            reader.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
            for number in (0, V - 1)
        ]
        assert marks == [(0, ROUNDS)] * 2
        # An offset beyond the end is out of range, and the consumer starts over.
        reader.assign([TopicPartition(topic, 5, ROUNDS + 1)])
        assert next(read(reader, 1)).offset() == 0


def test_plain_topics_are_served_in_the_same_requests(
    kafka: KafkaServer, proxy: ServedProxy, topic: str
) -> None:
    plain = create(kafka.bootstrap, f"plain-{topic}", 2, {})
    produce(proxy.bootstrap, topic, 0, is_idempotent=True)
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
    for number in range(ROUNDS):
        producer.produce(plain, b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0

    with closing(consumer(proxy.bootstrap, topic)) as reader:
        reader.subscribe([topic, plain])
        got = [(each.topic(), int(each.value() or b"")) for each in read(reader, COUNT + ROUNDS)]
        for name in (plain, topic):
            # Later records of either come although the other has none.
            producer.produce(name, b"-1", partition=1)
            assert producer.flush(20) == 0
            [last] = read(reader, 1)
            assert (last.topic(), last.value()) == (name, b"-1")
        reader.commit(asynchronous=False)
        places = [TopicPartition(plain, 1), TopicPartition(topic, 1)]
        committed = [each.offset for each in reader.committed(places, timeout=20)]

    assert sorted(value for name, value in got if name == plain) == list(range(ROUNDS))
    assert sorted(value for name, value in got if name == topic) == list(range(COUNT))
    assert committed == [ROUNDS // 2 + 1, ROUNDS + 1]
    with closing(consumer(kafka.bootstrap, topic)) as direct:
        [stored] = direct.committed([TopicPartition(plain, 1)], timeout=20)
        assert stored.offset == ROUNDS // 2 + 1
