"""Leaders move, brokers stop and are killed: clients of broker nodes recover as with Kafka."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.settings import BrokerSettings
from rookery.testing.kafka import KafkaCluster
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from tests.proxy.nodes.conftest import NODES
from tests.proxy.test_command import run_proxy
from tests.proxy.test_mirror import read

PARTITIONS = 6


class SteadyWriter:
    """An idempotent producer that writes numbers to all partitions until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged = 0
        self.errors: list[str] = []
        self.written = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 5,
                "message.timeout.ms": 60_000,
            }
        )
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    def stop(self) -> int:
        """Stop; return how many numbers each partition has."""
        self._is_stopped.set()
        self._thread.join(90)
        assert self._producer.flush(60) == 0
        return self.written

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            if self.written - self.acknowledged // PARTITIONS < 200:
                for partition in range(PARTITIONS):
                    value = b"%d" % self.written
                    self._producer.produce(
                        self._topic, value, partition=partition, on_delivery=self._note
                    )
                self.written += 1
            self._producer.poll(0.001)

    def _note(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(str(error))


@contextmanager
def writing(bootstrap: str, replicas: int) -> Iterator[tuple[SteadyWriter, str]]:
    """Write while the body runs; then check that every partition has every number once."""
    topic = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(30)
    writer = SteadyWriter(bootstrap, topic)
    try:
        advance(writer)
        yield writer, topic
        advance(writer)
    finally:
        count = writer.stop()
    assert writer.errors == []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    rows: dict[int | None, list[int]] = {number: [] for number in range(PARTITIONS)}
    for message in read(consumer, count * PARTITIONS):
        rows[message.partition()].append(int(message.value() or b""))
    consumer.close()
    assert rows == {number: list(range(count)) for number in range(PARTITIONS)}


def advance(writer: SteadyWriter) -> None:
    """Wait until some more numbers are acknowledged."""
    before = writer.acknowledged
    wait_until(lambda: writer.acknowledged > before + 20 * PARTITIONS, seconds=60)


def test_writes_survive_brokers_that_stop(own_victim: None, tmp_path: Path) -> None:
    with ExitStack() as stack:
        brokers = [ServedBroker(tmp_path, BrokerSettings(durability="os")) for _ in range(3)]
        for broker in brokers:
            broker.start()
        stack.callback(brokers[-1].stop)
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        proxy = stack.enter_context(ServedProxy(bootstrap, NODES))
        with writing(proxy.bootstrap, 1) as (writer, _):
            for broker in brokers[:-1]:
                broker.stop()
                advance(writer)


def test_transactions_survive_brokers_that_stop(own_victim: None, tmp_path: Path) -> None:
    """Each number is written to all partitions in one transaction, repeated until it commits."""
    with ExitStack() as stack:
        brokers = [ServedBroker(tmp_path, BrokerSettings(durability="os")) for _ in range(3)]
        for broker in brokers:
            broker.start()
        stack.callback(brokers[-1].stop)
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        proxy = stack.enter_context(ServedProxy(bootstrap, NODES))
        topic = f"t-{uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": topic})
        producer.init_transactions(30)
        for number in range(30):
            if number in {10, 20}:
                brokers[number // 10 - 1].stop()
            write_transaction(producer, topic, b"%d" % number)

        settings = {"group.id": topic, "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": proxy.bootstrap, **settings})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        rows: dict[int | None, list[int]] = {number: [] for number in range(PARTITIONS)}
        for message in read(consumer, 30 * PARTITIONS):
            rows[message.partition()].append(int(message.value() or b""))
        consumer.close()
        assert rows == {number: list(range(30)) for number in range(PARTITIONS)}


def write_transaction(producer: Producer, topic: str, value: bytes) -> None:
    """Write a value to all partitions in one transaction; start over when it must be aborted."""
    while True:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, value, partition=partition)
        try:
            retried(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            retried(producer.abort_transaction)
        else:
            return


def retried(step: Callable[[float], object]) -> None:
    """Repeat a step of a transaction as long as its error can be retried."""
    while True:
        try:
            step(30)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def test_writes_survive_killed_instances(own_victim: None, tmp_path: Path) -> None:
    """Producers continue through the other instance, with the sequences that brokers know."""
    ports = {1: free_port(), 2: free_port()}
    listed = ",".join(f"{node}={HOST}:{port}" for node, port in ports.items())

    def instance(stack: ExitStack, upstream: str, node: int) -> subprocess.Popen[str]:
        process, _ = stack.enter_context(
            run_proxy(
                *("--upstream", upstream, "--listen", f"{HOST}:{ports[node]}", "--http-listen", ""),
                *("--nodes", "proxy", "--instances", listed, "--node-id", str(node)),
            )
        )
        return process

    with ExitStack() as stack:
        settings = BrokerSettings(durability="os")
        brokers = [stack.enter_context(ServedBroker(tmp_path, settings)) for _ in range(3)]
        upstream = ",".join(broker.bootstrap for broker in brokers)
        processes = {node: instance(stack, upstream, node) for node in ports}
        bootstrap = ",".join(f"{HOST}:{port}" for port in ports.values())
        with writing(bootstrap, 1) as (writer, _):
            for node in (1, 2, 1):
                processes[node].kill()
                processes[node].wait(20)
                advance(writer)
                processes[node] = instance(stack, upstream, node)
                advance(writer)


def test_writes_survive_killed_leaders(own_kafka: None) -> None:
    with (
        KafkaCluster(3) as cluster,
        ServedProxy(cluster.bootstrap, NODES) as proxy,
        writing(proxy.bootstrap, 3) as (writer, _),
    ):
        for node in cluster.nodes:
            node.kill()
            advance(writer)
            node.start()
            cluster.wait_ready()
            advance(writer)


def test_writes_survive_a_silent_broker(own_kafka: None) -> None:
    """Its connections stay open, and its answers do not come."""
    with (
        KafkaCluster(3) as cluster,
        ServedProxy(cluster.bootstrap, NODES) as proxy,
        writing(proxy.bootstrap, 3) as (writer, _),
    ):
        cluster.nodes[1].pause()
        try:
            advance(writer)
        finally:
            cluster.nodes[1].resume()
