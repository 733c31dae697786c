"""A broker over a slow store, and what is seen of it from outside."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ErrorCode
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.broker import BrokerProcess
from rookery.wire.codec import read_response, request_frame
from rookery.wire.message import Api, Message
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_SAMPLE: Final = re.compile(r"(?m)^(\w+)(?:\{([^}]*)\})? (\S+)$")


# Processes, as the kernel counts them.


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    pids: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        pids += map(int, (task / "children").read_text().split())
    return pids


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process and its children, also of those that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / _TICKS
    return own + sum(map(cpu, children(pid)))


def resident(pid: int) -> float:
    """Return the memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20


# A broker.


@contextmanager
def broker(store: str, cluster: str, *flags: str) -> Iterator[BrokerProcess]:
    """Run a broker that holds nothing; both URLs empty: one with a journal in a folder."""
    where = ["--store", store] if store else ["--durability", "os"]
    where += ["--cluster", cluster] if cluster else []
    with (
        tempfile.TemporaryDirectory(prefix="bench-objects-") as folder,
        BrokerProcess(Path(folder) / "data", flags=[*where, *flags]) as served,
    ):
        yield served
        served.stop(30)


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Make a topic and wait for it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        made.result(60)


class Numbers(dict[str, float]):
    """What a broker's `/metrics` tell."""

    @classmethod
    def of(cls, served: BrokerProcess) -> Numbers:
        """Ask a broker."""
        with urlopen(f"http://{served.http[0]}/metrics") as answer:
            text = answer.read().decode()
        numbers = cls()
        for name, labels, value in _SAMPLE.findall(text):
            numbers[f"{name}{{{labels}}}" if labels else name] = float(value)
        return numbers

    def since(self, before: Numbers, name: str) -> float:
        """Return how much a number has grown."""
        return self.get(name, 0.0) - before.get(name, 0.0)


CREATES: Final = 'rookery_store_requests_total{kind="create"}'
FLUSHES: Final = "rookery_log_flush_seconds_count"
PRODUCES: Final = 'rookery_broker_request_seconds_count{api="Produce"}'
ROUNDS: Final = "rookery_caretaker_rounds_total"
LAG: Final = "rookery_rewriter_lag_bytes"


def wait_for(what: str, check: Callable[[], bool], seconds: float = 300) -> None:
    """Return when something has come true."""
    deadline = time.perf_counter() + seconds
    while not check():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.2)


# A client of few words.


class Client:
    """One connection, one request at a time."""

    def __init__(self, served: BrokerProcess) -> None:
        self._socket = socket.create_connection(("127.0.0.1", served.port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def produce(self, request: ProduceRequest) -> float:
        """Send records; return how many milliseconds the answer took."""
        begun = time.perf_counter()
        answer = self._ask(PRODUCE, 9, request)
        spent = (time.perf_counter() - begun) * 1e3
        for topic in answer.responses:
            refused = {part.error_code for part in topic.partition_responses} - {ErrorCode.NONE}
            if refused:
                raise RuntimeError(f"the broker refused records: {refused}")
        return spent

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _ask(self, api: Api[Q, A], version: int, request: Q) -> A:
        self._socket.sendall(b"".join(request_frame(api, version, 1, "bench", request)))
        size = int.from_bytes(self._exactly(4), "big")
        return read_response(api, version, self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker has closed the connection")
            data += more
        return bytes(data)


def records_for(topic: str, partitions: Sequence[int], size: int) -> ProduceRequest:
    """Make a request with a record for each of the partitions."""
    data = build([Record(b"key", os.urandom(size), (), int(time.time() * 1000))], BatchSettings())
    parts = [PartitionProduceData(index=index, records=data) for index in partitions]
    topics = [TopicProduceData(name=topic, partition_data=parts)]
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics)
