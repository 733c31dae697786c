"""Transactions of real clients write to virtual partitions of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from tests.proxy.virtual.conftest import SETTINGS, P, V, create
from tests.proxy.virtual.test_clients import ROUNDS, produce, read


@pytest.fixture(params=["virtual", "block", "oracle"])
def place(
    request: pytest.FixtureRequest, kafka: KafkaServer, proxy: ServedProxy
) -> tuple[str, Callable[[], str]]:
    """Where clients connect, and how topics are made; the oracle has V partitions itself."""
    is_oracle = request.param == "oracle"

    def make() -> str:
        name = f"{request.param}-{uuid4().hex}"
        return create(kafka.bootstrap, name, V if is_oracle else P, {"retention.ms": "-1"})

    return kafka.bootstrap if is_oracle else proxy.bootstrap, make


def writer(bootstrap: str, name: str) -> Producer:
    """Return a producer that can begin a transaction."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5}
    producer = Producer(settings)
    producer.init_transactions(20)
    return producer


def reader(bootstrap: str, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
        }
    )


def ends(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[int]:
    """Return the end of each partition, as consumers of an isolation level see it."""
    with closing(reader(bootstrap, topic, isolation)) as consumer:
        places = [TopicPartition(topic, number) for number in range(V)]
        return [consumer.get_watermark_offsets(each, timeout=20)[1] for each in places]


def write(producer: Producer, topic: str, numbers: dict[int, int]) -> dict[int, list[int]]:
    """Write some records to each partition; return their offsets."""
    offsets: dict[int, list[int]] = {partition: [] for partition in numbers}

    def note(error: object, message: Message) -> None:
        assert error is None
        offsets[message.partition() or 0].append(message.offset() or 0)

    for partition, count in numbers.items():
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition, on_delivery=note)
    assert producer.flush(20) == 0
    return offsets


def test_readers_see_committed_transactions_alone(place: tuple[str, Callable[[], str]]) -> None:
    bootstrap, make = place
    topic = make()
    producer = writer(bootstrap, topic)

    producer.begin_transaction()
    assert write(producer, topic, {0: 3, 4: 2}) == {0: [0, 1, 2], 4: [0, 1]}
    assert ends(bootstrap, topic)[:5] == [0] * 5
    assert ends(bootstrap, topic, "read_uncommitted")[:5] == [3, 0, 0, 0, 2]
    producer.abort_transaction(20)
    producer.begin_transaction()
    assert write(producer, topic, {0: 1}) == {0: [4]}
    producer.commit_transaction(20)

    wait_until(
        lambda: ends(bootstrap, topic) == [6, 0, 0, 0, 3, *[0] * (V - 5)], "the markers are there"
    )
    with closing(reader(bootstrap, topic)) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(V)])
        got = [(each.partition(), each.offset(), each.value()) for each in read(consumer, 1)]
        assert got == [(0, 4, b"0")]
        assert consumer.poll(0.3) is None
    with closing(reader(bootstrap, topic, "read_uncommitted")) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(V)])
        all_of_them = sorted((each.partition(), each.offset()) for each in read(consumer, 6))
        assert all_of_them == [(0, 0), (0, 1), (0, 2), (0, 4), (4, 0), (4, 1)]


def test_an_open_transaction_holds_back_its_own_partitions_only(
    place: tuple[str, Callable[[], str]],
) -> None:
    bootstrap, make = place
    topic = make()
    slow, quick = writer(bootstrap, f"slow-{topic}"), writer(bootstrap, f"quick-{topic}")

    slow.begin_transaction()
    write(slow, topic, {0: 2})
    quick.begin_transaction()
    write(quick, topic, {0: 2, 4: 2, 8: 1})
    quick.commit_transaction(20)

    wait_until(lambda: ends(bootstrap, topic)[4] == 3, "the second transaction has ended")
    assert [ends(bootstrap, topic)[each] for each in (0, 4, 8)] == [0, 3, 2]
    slow.commit_transaction(20)
    wait_until(lambda: ends(bootstrap, topic)[0] == 6, "the first transaction has ended")


def test_all_partitions_at_once_in_many_transactions(
    place: tuple[str, Callable[[], str]],
) -> None:
    bootstrap, make = place
    topic = make()
    producer = writer(bootstrap, topic)
    for number in range(10):
        producer.begin_transaction()
        offsets = write(producer, topic, dict.fromkeys(range(V), 3))
        assert offsets == {each: [4 * number, 4 * number + 1, 4 * number + 2] for each in range(V)}
        if number % 3 == 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)

    with closing(reader(bootstrap, topic)) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(V)])
        got: dict[int, list[int]] = {number: [] for number in range(V)}
        for each in read(consumer, 7 * 3 * V):
            got[each.partition() or 0].append(each.offset() or 0)
        wanted = [4 * each + at for each in range(10) if each % 3 != 2 for at in range(3)]
        assert got == dict.fromkeys(range(V), wanted)
        # A reader that begins within an aborted transaction sees none of it.
        consumer.assign([TopicPartition(topic, 7, 9)])
        assert next(read(consumer, 1)).offset() == 12


def copy(consumer: Consumer, producer: Producer, source: str, target: str, stop: int) -> int:
    """Copy records in transactions, of which some are aborted; return how many were copied."""
    copied = tries = 0
    while copied < stop:
        batch = [each for each in consumer.consume(30, 20) if each.error() is None]
        tries += 1
        producer.begin_transaction()
        for each in batch:
            producer.produce(target, each.value(), partition=each.partition() or 0)
        read_to = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        producer.send_offsets_to_transaction(read_to, consumer.consumer_group_metadata(), 20)
        if tries % 3 == 2:
            producer.abort_transaction(20)
            for place in consumer.committed(consumer.assignment(), timeout=20):
                consumer.seek(TopicPartition(source, place.partition, max(place.offset, 0)))
        else:
            producer.commit_transaction(20)
            copied += len(batch)
    return copied


def values(bootstrap: str, topic: str, count: int) -> dict[int, list[int]]:
    """Return the committed values of each partition."""
    with closing(reader(bootstrap, f"values-{topic}")) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(V)])
        got: dict[int, list[int]] = {number: [] for number in range(V)}
        for each in read(consumer, count):
            got[each.partition() or 0].append(int(each.value() or b""))
        assert consumer.poll(0.2) is None
    return got


def test_records_are_copied_once_with_their_offsets(
    place: tuple[str, Callable[[], str]],
) -> None:
    bootstrap, make = place
    source, target = make(), make()
    produce(bootstrap, source, 0, is_idempotent=True)
    total, done = ROUNDS * V, 0
    places = [TopicPartition(source, number) for number in range(V)]
    while done < total:
        # Each time another copier continues where the transactions of the last have ended.
        with closing(reader(bootstrap, source)) as consumer:
            consumer.assign(places)
            producer = writer(bootstrap, f"copy-{source}")
            done += copy(consumer, producer, source, target, total // 2)

    check_copy(bootstrap, source, target)


def check_copy(bootstrap: str, source: str, target: str) -> None:
    """Expect every record once, in order, and the offsets at the end."""
    total = ROUNDS * V
    wanted = {each: list(range(each, total, V)) for each in range(V)}
    assert values(bootstrap, target, total) == wanted
    with closing(reader(bootstrap, source)) as consumer:
        places = [TopicPartition(source, number) for number in range(V)]
        committed = consumer.committed(places, timeout=20)
        assert [each.offset for each in committed] == [ROUNDS] * V


def test_offsets_of_a_fenced_member_are_refused(place: tuple[str, Callable[[], str]]) -> None:
    bootstrap, make = place
    topic = make()
    with closing(reader(bootstrap, topic)) as old:
        old.subscribe([topic])
        wait_until(lambda: bool(old.poll(0.1) or old.assignment()), "the first member has joined")
        fenced = old.consumer_group_metadata()
    producer = writer(bootstrap, topic)
    producer.begin_transaction()
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction([TopicPartition(topic, 5, 3)], fenced, 20)
    producer.abort_transaction(20)
    with closing(reader(bootstrap, topic)) as consumer:
        [committed] = consumer.committed([TopicPartition(topic, 5)], timeout=20)
        assert committed.offset < 0


@pytest.fixture
def pair(kafka: KafkaServer) -> Iterator[list[ServedProxy]]:
    """Two instances that know each other."""
    ports = {1: free_port(), 2: free_port()}
    listed = ",".join(f"{node}={HOST}:{port}" for node, port in ports.items())
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                ServedProxy(
                    kafka.bootstrap, replace(SETTINGS, node_id=node, instances=listed), port=port
                )
            )
            for node, port in ports.items()
        ]


def test_a_proxy_that_starts_again_lets_no_half_of_a_transaction_through(
    kafka: KafkaServer, topic: str
) -> None:
    port = free_port()
    with ServedProxy(kafka.bootstrap, SETTINGS, port=port) as first:
        producer = writer(first.bootstrap, topic)
        producer.begin_transaction()
        write(producer, topic, dict.fromkeys(range(V), 2))
        producer.commit_transaction(20)
        producer.begin_transaction()
        write(producer, topic, dict.fromkeys(range(V), 2))
    with ServedProxy(kafka.bootstrap, SETTINGS, port=port) as second:
        failures: list[object] = []
        for partition in range(V):
            producer.produce(
                topic,
                b"?",
                partition=partition,
                on_delivery=lambda error, _: failures.append(error),
            )
        with pytest.raises(KafkaException) as failed:
            producer.commit_transaction(30)
        assert failed.value.args[0].txn_requires_abort()
        producer.abort_transaction(30)
        producer.begin_transaction()
        write(producer, topic, dict.fromkeys(range(V), 1))
        producer.commit_transaction(20)
        assert values(second.bootstrap, topic, 3 * V) == {number: [0, 1, 0] for number in range(V)}


def test_two_instances_serve_one_producer(pair: list[ServedProxy], topic: str) -> None:
    producer = writer(pair[0].bootstrap, topic)
    for _ in range(5):
        producer.begin_transaction()
        write(producer, topic, dict.fromkeys(range(V), 2))
        producer.commit_transaction(20)

    wanted = dict.fromkeys(range(V), [0, 1] * 5)
    assert [values(each.bootstrap, topic, 10 * V) for each in pair] == [wanted] * 2
