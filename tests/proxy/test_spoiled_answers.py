"""Brokers that misbehave cost a client a retry: real clients lose, double and reorder nothing.

A relay between the proxy and a real broker spoils some responses, of any API. The proxy gives up
that connection; what the client sees is an error that it retries by itself.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from rookery.broker.settings import BrokerSettings
from rookery.model.address import Address
from rookery.proxy.settings import ProxySettings
from rookery.testing.java import Java
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.tools import ToolHost
from rookery.testing.wait import wait_until
from rookery.wire.frame import FrameSplitter
from tests.clients.javatools import Tool
from tests.proxies import MODES

RECORDS: Final = 400
EVERY: Final = 9
"""One of this number of responses is spoiled."""
FAULTS: Final = 1
"""The number of faults of a test, for producers and for consumers: librdkafka can take a second to
connect again."""
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}

Spoil = Callable[[bytes], bytes]
"""Returns what a broker sends instead of a response, which is given with its length."""


def wrong_number(frame: bytes) -> bytes:
    [number] = struct.unpack_from(">i", frame, 4)
    return frame[:4] + struct.pack(">i", number ^ 1) + frame[8:]


def cut_short(frame: bytes) -> bytes:
    return frame[:-1]


def huge_length(frame: bytes) -> bytes:
    return struct.pack(">i", 2**31 - 1) + frame[4:]


def negative_length(frame: bytes) -> bytes:
    return struct.pack(">i", -1) + frame[4:]


def nothing(_: bytes) -> bytes:
    return b""


class Spoiler:
    """A relay before one broker that ends connections after a spoiled response."""

    def __init__(self, port: int, broker: Address, spoil: Spoil) -> None:
        self.due = FAULTS
        """How many responses are still to be spoiled."""
        self._broker = broker
        self._spoil = spoil
        self._count = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._server = socket.create_server((HOST, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection(self._broker)
            self._open += [client, broker]
            for work in (self._pass_requests, self._pass_responses):
                threading.Thread(target=work, args=(client, broker), daemon=True).start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                broker.sendall(data)
        with suppress(OSError):
            broker.shutdown(socket.SHUT_RDWR)

    def _pass_responses(self, client: socket.socket, broker: socket.socket) -> None:
        splitter = FrameSplitter(2**31 - 1, minimum=0)
        with suppress(OSError):
            while data := broker.recv(1 << 16):
                for frame in splitter.feed(data):
                    response = struct.pack(">i", len(frame)) + bytes(frame)
                    if self._is_due():
                        client.sendall(self._spoil(response))
                        client.shutdown(socket.SHUT_WR)
                        broker.shutdown(socket.SHUT_RDWR)
                        return
                    client.sendall(response)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    def _is_due(self) -> bool:
        with self._lock:
            self._count += 1
            is_due = self.due > 0 and self._count % EVERY == 0
            self.due -= is_due
        return is_due


@contextmanager
def spoiled_proxy(
    folder: Path, settings: ProxySettings, spoil: Spoil
) -> Iterator[tuple[ServedProxy, Spoiler]]:
    """A proxy before a broker whose only advertised address is that of the relay."""
    port = free_port()
    broker = ServedBroker(
        folder / "data", BrokerSettings(durability="os", advertise=f"{HOST}:{port}")
    )
    with ExitStack() as stack:
        stack.enter_context(broker)
        spoiler = Spoiler(port, Address(HOST, broker.port), spoil)
        stack.callback(spoiler.close)
        yield stack.enter_context(ServedProxy(f"{HOST}:{port}", settings)), spoiler


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 4,
            "retry.backoff.ms": 10,
            **QUIET,
        }
    )
    acknowledged: list[int] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(int(message.value() or b""))

    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0, on_delivery=note)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert acknowledged == list(range(RECORDS))


def consume(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            # many responses, so that some are spoiled
            "fetch.message.max.bytes": 200,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 0,
            "fetch.error.backoff.ms": 10,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    numbers: list[int] = []

    def has_all() -> bool:
        messages = consumer.consume(RECORDS, 0.1)
        numbers.extend(int(each.value() or b"") for each in messages if each.error() is None)
        return len(numbers) >= RECORDS

    wait_until(has_all)
    consumer.close()
    return numbers


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spoil", [wrong_number, cut_short, huge_length, negative_length, nothing])
def test_spoiled_responses_cost_a_retry(tmp_path: Path, spoil: Spoil, mode: str) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    with spoiled_proxy(tmp_path, MODES[mode], spoil) as (proxy, spoiler):
        produce(proxy.bootstrap, topic)
        assert spoiler.due == 0
        spoiler.due = FAULTS
        assert consume(proxy.bootstrap, topic) == list(range(RECORDS))
        assert spoiler.due == 0


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolHost]:
    """One Java for all calls of tools."""
    with ToolHost(Java.find(), tmp_path_factory.mktemp("tools")) as host:
        yield host


@pytest.mark.kafka
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spoil", [wrong_number, cut_short])
def test_spoiled_responses_cost_java_a_retry(
    java: ToolHost, tmp_path: Path, spoil: Spoil, mode: str
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    with spoiled_proxy(tmp_path, MODES[mode], spoil) as (proxy, spoiler):
        spoiler.due = 0
        tool = Tool(java, proxy.bootstrap)
        tool("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
        lines = [str(number) for number in range(RECORDS)]

        spoiler.due = FAULTS
        small = ("--command-property", "batch.size=50", "--command-property", "linger.ms=0")
        tool("kafka-console-producer", "--topic", topic, *small, text="\n".join(lines) + "\n")
        assert spoiler.due == 0
        spoiler.due = FAULTS
        little = ("--command-property", "max.partition.fetch.bytes=200")
        assert tool.read(topic, RECORDS, "--partition", "0", *little) == lines
        assert spoiler.due == 0
