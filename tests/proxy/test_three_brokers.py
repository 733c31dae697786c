"""A proxy in front of three Kafka servers, which are killed or restarted under load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.testing.kafka import KafkaCluster
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from tests.proxies import MODES, Proxies

PARTITIONS = 6
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 300}


@pytest.fixture(scope="module", params=MODES)
def proxy(
    request: pytest.FixtureRequest, kafka_cluster: KafkaCluster, proxies: Proxies
) -> ServedProxy:
    """A proxy in front of all three."""
    return proxies.find(kafka_cluster.bootstrap, str(request.param))


@pytest.fixture
def topic(proxy: ServedProxy) -> str:
    """A topic whose partitions all servers hold."""
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(30)
    return name


class NumbersProducer:
    """Writes numbers to all partitions in turn until it ends; keeps those acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acked: dict[int, list[int]] = defaultdict(list)
        self.errors: list[str] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, **QUIET}
        )
        self._topic = topic
        self._ending = Event()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        """How many records were acknowledged."""
        return sum(map(len, list(self.acked.values())))

    def end(self) -> None:
        """Write no more, and wait for the acknowledgements."""
        self._ending.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0
        assert self.errors == []

    def _work(self) -> None:
        number = 0
        while not self._ending.wait(0.002):
            self._send(number, number % PARTITIONS)
            self._producer.poll(0)
            number += 1

    def _send(self, number: int, partition: int) -> None:
        def keep(error: object, _: object) -> None:
            if error is None:
                self.acked[partition].append(number)
            else:
                self.errors.append(str(error))

        self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=keep)


class NumbersMember:
    """A member of a group that keeps what it reads, by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.read: dict[int, list[int]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                **QUIET,
            }
        )
        self._consumer.subscribe([topic])
        self._ending = Event()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        """How many different records it has read."""
        return sum(len(set(rows)) for rows in list(self.read.values()))

    def end(self) -> None:
        """Leave the group."""
        self._ending.set()
        self._thread.join(60)
        self._consumer.close()

    def _work(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(1_000, 0.1):
                if message.error() is None:
                    self.read[message.partition() or 0].append(int(message.value() or b""))


@contextmanager
def at_work(bootstrap: str, topic: str) -> Iterator[tuple[NumbersProducer, NumbersMember]]:
    producer, member = NumbersProducer(bootstrap, topic), NumbersMember(bootstrap, topic)
    try:
        yield producer, member
        producer.end()
        wait_until(lambda: member.total, "all records", accepts=lambda n: n >= producer.total)
    finally:
        member.end()


def test_every_broker_has_an_address_of_the_proxy(proxy: ServedProxy, topic: str) -> None:
    metadata = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(topic, timeout=30)

    addresses = {node: f"{broker.host}:{broker.port}" for node, broker in metadata.brokers.items()}
    [cluster] = proxy.proxy.clusters
    assert addresses == {node: address.text for node, address in cluster.nodes.items()}
    nodes = {1, 2, 3} if proxy.settings.nodes == "mirror" else {1}
    assert set(addresses) == nodes
    assert len(set(addresses.values())) == len(nodes)
    leaders = {row.leader for row in metadata.topics[topic].partitions.values()}
    assert leaders == nodes


def test_leaders_on_all_brokers_are_written_and_read(proxy: ServedProxy, topic: str) -> None:
    with at_work(proxy.bootstrap, topic) as (producer, _):
        wait_until(lambda: len(producer.acked) == PARTITIONS)


@pytest.mark.parametrize("node", [1, 2, 3])
def test_killed_broker_loses_and_doubles_nothing(
    proxy: ServedProxy, topic: str, kafka_cluster: KafkaCluster, node: int
) -> None:
    with at_work(proxy.bootstrap, topic) as (producer, member):
        wait_until(lambda: producer.total > 100)
        wait_until(lambda: member.total > 100)
        kafka_cluster.node(node).kill()
        try:
            advance(producer)
        finally:
            kafka_cluster.node(node).start()
        advance(producer)

    check_records(proxy, topic, producer, member)


def test_rolling_restart_loses_and_doubles_nothing(
    proxy: ServedProxy, topic: str, kafka_cluster: KafkaCluster
) -> None:
    with at_work(proxy.bootstrap, topic) as (producer, member):
        wait_until(lambda: member.total > 100)
        for node in kafka_cluster.nodes:
            node.restart()
            kafka_cluster.wait_ready()
            advance(producer)

    check_records(proxy, topic, producer, member)


def advance(producer: NumbersProducer) -> None:
    """Wait until some more records are acknowledged."""
    enough = producer.total + 200
    wait_until(lambda: producer.total > enough, seconds=90)


def check_records(
    proxy: ServedProxy, topic: str, producer: NumbersProducer, member: NumbersMember
) -> None:
    """Check that the log and the member have all that was acknowledged, in order."""
    acked = {place: sorted(rows) for place, rows in producer.acked.items()}
    assert read_all(proxy.bootstrap, topic, producer.total) == acked
    # A group whose coordinator dies may read again what it had not committed.
    assert {place: list(dict.fromkeys(rows)) for place, rows in member.read.items()} == acked


def read_all(bootstrap: str, topic: str, total: int) -> dict[int, list[int]]:
    """Return all records by partition, and check that there are no more."""
    rows: dict[int, list[int]] = defaultdict(list)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobodys",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    ended: set[int] = set()

    def has_all() -> bool:
        for message in consumer.consume(1_000, 0.1):
            error, place = message.error(), message.partition() or 0
            if error is None:
                rows[place].append(int(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(place)
        return len(ended) == PARTITIONS

    try:
        wait_until(has_all)
    finally:
        consumer.close()
    assert sum(map(len, rows.values())) == total
    return rows
