"""Brokers killed one after the other while a consumer reads: it neither rewinds nor skips.

Clients reach the brokers directly, or through a proxy with each kind of nodes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rookery.testing.broker import BrokerProcess
from rookery.testing.java import TOOLS, Java
from rookery.testing.probe import brokers_seen
from rookery.testing.process import LoggedProcess
from rookery.testing.wait import wait_until
from tests.clients.peers import new_topic
from tests.proxies import MODES, proxy_before

WORKERS = 3
PATIENCE = 120.0
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}


class Numbers(Protocol):
    """A consumer of numbers."""

    def read(self) -> list[int]:
        """Return what it has got so far, in the order in which it got it."""


class ConfluentNumbers:
    """librdkafka with a partition assigned, in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "numbers",
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._numbers: list[int] = []
        self._stopping = Event()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def read(self) -> list[int]:
        """Return what it has got so far."""
        return list(self._numbers)

    def close(self) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join(PATIENCE)
        self._consumer.close()

    def _work(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1_000, 0.05):
                if message.error() is None:
                    self._numbers.append(int(message.value() or b""))


class JavaNumbers:
    """Kafka's console consumer, which reads one partition."""

    def __init__(self, java: Java, bootstrap: str, topic: str, log: Path) -> None:
        self._log = log
        args = ("--topic", topic, "--partition", "0", "--offset", "0")
        command = java.command(
            TOOLS["kafka-console-consumer"], "--bootstrap-server", bootstrap, *args
        )
        self._process = LoggedProcess(command, log)

    def read(self) -> list[int]:
        """Return what it has printed so far, without its log lines."""
        text, _, _ = self._log.read_text().rpartition("\n")
        return [int(line) for line in text.splitlines() if line.isdigit()]

    def close(self) -> None:
        """End it."""
        self._process.kill()


class Writing:
    """An idempotent producer that writes 0, 1, 2 … until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.count = 0
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, **QUIET}
        )
        self._stopping = Event()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def finish(self) -> int:
        """Write no more, and return how many there are."""
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert self._producer.flush(PATIENCE) == 0
        return self.count

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._producer.produce(self._topic, b"%d" % self.count, partition=0)
            self.count += 1
            self._producer.poll(0.001)
            while len(self._producer) > 500 and not self._stopping.is_set():
                self._producer.poll(0.01)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", workers=WORKERS) as broker:
        yield broker


@pytest.fixture(params=["direct", *MODES])
def entry(request: pytest.FixtureRequest, cluster: BrokerProcess) -> Iterator[str]:
    """The address that clients use."""
    if request.param == "direct":
        yield cluster.bootstrap
        return
    with proxy_before(cluster.bootstrap, request.param) as proxy:
        yield proxy.bootstrap


@contextmanager
def closing(numbers: ConfluentNumbers | JavaNumbers) -> Iterator[Numbers]:
    try:
        yield numbers
    finally:
        numbers.close()


def ordeal(cluster: BrokerProcess, entry: str, topic: str, numbers: Numbers) -> None:
    """Kill each broker once, with reading in between; then compare."""
    writing = Writing(entry, topic)
    ports = [cluster.port + 1 + at for at in range(WORKERS)]
    _wait_for(numbers, 100)
    for broker in cluster.ready["brokers"]:
        os.kill(broker["pid"], signal.SIGKILL)
        # Written after the kill, and read.
        _wait_for(numbers, writing.count + 100)
        _wait_for_all(ports)
    count = writing.finish()
    _wait_for(numbers, count)

    read = numbers.read()
    wrong = next((at for at, number in enumerate(read) if at != number), None)
    assert wrong is None, f"at {wrong}: {read[max(0, (wrong or 0) - 3) : (wrong or 0) + 4]}"
    assert len(read) == count


def _wait_for(numbers: Numbers, count: int) -> None:
    wait_until(
        lambda: len(numbers.read()),
        f"the consumer gets {count} records",
        accepts=lambda got: got >= count,
        seconds=PATIENCE,
    )


def _wait_for_all(ports: list[int]) -> None:
    wait_until(
        lambda: {port: len(brokers_seen(port)) for port in ports},
        "all brokers come back",
        accepts=lambda seen: set(seen.values()) == {WORKERS},
        seconds=PATIENCE,
    )


@pytest.mark.usefixtures("own_victim")
def test_librdkafka_continues_reading_while_brokers_are_killed(
    cluster: BrokerProcess, entry: str
) -> None:
    topic = new_topic(cluster.bootstrap)
    with closing(ConfluentNumbers(entry, topic)) as numbers:
        ordeal(cluster, entry, topic, numbers)


@pytest.mark.kafka
@pytest.mark.usefixtures("own_victim")
def test_java_consumer_continues_reading_while_brokers_are_killed(
    cluster: BrokerProcess, entry: str, java: Java, tmp_path: Path
) -> None:
    topic = new_topic(cluster.bootstrap)
    consumer = JavaNumbers(java, entry, topic, tmp_path / "consumer.log")
    with closing(consumer) as numbers:
        ordeal(cluster, entry, topic, numbers)
