"""How a broker bears much of everything: partitions, producers, connections, fetches, bytes.

    python bench/scale.py                     all of it, a few minutes
    python bench/scale.py --only memory,idle  parts of it

It runs `rookery broker` as users do and looks at the process from outside: memory and CPU time as
the kernel counts them, times from the start of the process to its first answers.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import TypeVar
from urllib.request import urlopen

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.clock import SystemClock
from rookery.errors import ErrorCode
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.broker import BrokerProcess
from rookery.wire.codec import read_response, request_frame
from rookery.wire.message import Api, Message
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

PARTITIONS = 10_000
PRODUCERS = 1_000
CONNECTIONS = 1_000
FETCHES_EACH = 10
LOG_BYTES = 1_000_000_000
MEBIBYTE = 1024 * 1024
_TICKS = os.sysconf("SC_CLK_TCK")


def show(what: str, value: float, unit: str, goal: str = "") -> None:
    """Print one figure."""
    print(f"{what:<62} {value:>12,.2f} {unit:<10} {goal}", flush=True)


# A process, seen from outside.


def resident(pid: int) -> int:
    """Return how many bytes of memory a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu(pid: int) -> float:
    """Return how many seconds of CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# A client of few words.


class Client:
    """One connection, without a thread and hardly any memory."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), 60)

    def send(self, api: Api[Q, A], version: int, request: Q) -> None:
        """Send a request."""
        self.socket.sendall(b"".join(request_frame(api, version, 1, "scale", request)))

    def receive(self, api: Api[Q, A], version: int) -> A:
        """Wait for the answer."""
        size = int.from_bytes(self._exactly(4), "big")
        return read_response(api, version, self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker has closed the connection")
            data += more
        return data

    def ask(self, api: Api[Q, A], version: int, request: Q) -> A:
        """Send a request and wait for its answer."""
        self.send(api, version, request)
        return self.receive(api, version)


@contextmanager
def broker(*flags: str) -> Iterator[BrokerProcess]:
    """Run a broker in a folder of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="rookery-scale-") as folder,
        BrokerProcess(Path(folder) / "data", flags=flags) as served,
    ):
        yield served


def make_topic(served: BrokerProcess, name: str, partitions: int) -> None:
    """Make a topic and wait for it."""
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        made.result(60)


def produce_to(
    topic: str, partitions: Sequence[int], settings: BatchSettings | None = None
) -> ProduceRequest:
    """Make a request with a record for each of the partitions."""
    record = Record(b"key", bytes(100), (), SystemClock().now_ms())
    data = build([record], settings or BatchSettings())
    parts = [PartitionProduceData(index=index, records=data) for index in partitions]
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )


def _write(client: Client, request: ProduceRequest) -> None:
    _check(client.ask(PRODUCE, 9, request))


def _check(response: ProduceResponse) -> None:
    for topic in response.responses:
        refused = {part.error_code for part in topic.partition_responses} - {ErrorCode.NONE}
        if refused:
            raise RuntimeError(f"the broker refused records: {refused}")


# The measurements.


def memory() -> None:
    """Measure a broker with many partitions and many idempotent producers."""
    with broker("--durability", "os") as served:
        before = resident(served.pid)
        show("memory of an empty broker", before / MEBIBYTE, "MiB")
        make_topic(served, "many", PARTITIONS)
        made = resident(served.pid)
        show("memory per partition, empty", (made - before) / PARTITIONS, "bytes")
        client = Client(served)
        for start in range(0, PARTITIONS, 1000):
            _write(client, produce_to("many", range(start, start + 1000)))
        show("memory per partition, written", (resident(served.pid) - before) / PARTITIONS, "bytes")
        written = resident(served.pid)
        for producer_id in range(PRODUCERS):
            settings = BatchSettings(producer_id=producer_id, producer_epoch=0, base_sequence=0)
            # Each of them writes to ten partitions.
            own = [(producer_id * 10 + step) % PARTITIONS for step in range(10)]
            _write(client, produce_to("many", own, settings))
        now = resident(served.pid)
        show("memory per producer and partition", (now - written) / PRODUCERS / 10, "bytes")
        show("memory with 10 000 partitions, 1 000 producers", now / MEBIBYTE, "MiB", "≤ 1 024")


def idle() -> None:
    """Measure idle connections, then fetches that wait on them."""
    with broker("--durability", "os") as served, ExitStack() as stack:
        make_topic(served, "quiet", FETCHES_EACH)
        before = resident(served.pid)
        clients = [Client(served) for _ in range(CONNECTIONS)]
        for client in clients:
            stack.callback(client.socket.close)
            client.ask(API_VERSIONS, 3, _who())
        per_connection = (resident(served.pid) - before) / CONNECTIONS
        show("memory per idle connection", per_connection, "bytes")
        show("CPU with 1 000 idle connections", _idle_cpu(served.pid), "% of a core")
        before = resident(served.pid)
        for client in clients:
            for index in range(FETCHES_EACH):
                client.send(FETCH, 12, _fetch("quiet", index))
        _until_in_flight(served, CONNECTIONS * FETCHES_EACH)
        show("CPU with 10 000 waiting fetches", _idle_cpu(served.pid), "% of a core")
        waiting = CONNECTIONS * FETCHES_EACH
        show("memory per waiting fetch", (resident(served.pid) - before) / waiting, "bytes")


def _who() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="scale", client_software_version="1")


def _fetch(topic: str, index: int) -> FetchRequest:
    part = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MEBIBYTE)
    return FetchRequest(
        max_wait_ms=120_000,
        min_bytes=1,
        max_bytes=MEBIBYTE,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )


def _until_in_flight(served: BrokerProcess, count: int) -> None:
    """Return when the broker reports a given number of waiting requests."""
    line = f"rookery_broker_requests_inflight {count}"
    while True:
        with urlopen(f"http://{served.http[0]}/metrics") as answer:
            if line in answer.read().decode().splitlines():
                return
        time.sleep(0.1)


def _idle_cpu(pid: int, seconds: float = 8.0) -> float:
    before = cpu(pid)
    time.sleep(seconds)
    return (cpu(pid) - before) / seconds * 100


def spread() -> None:
    """Compare producing to many partitions with producing to few."""
    with broker("--durability", "os") as served:
        rates = {}
        for partitions in (10, 1000):
            name = f"spread{partitions}"
            make_topic(served, name, partitions)
            rates[partitions] = _rate(served, name, partitions)
            show(f"produce 100 B to {partitions} partitions", rates[partitions], "records/s")
        show("1 000 partitions against 10", rates[1000] / rates[10], "times", "≥ 0.5")


def _rate(served: BrokerProcess, topic: str, partitions: int, count: int = 500_000) -> float:
    producer = Producer(
        {
            "bootstrap.servers": served.bootstrap,
            "linger.ms": 100,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = bytes(100)
    for index in range(partitions):
        producer.produce(topic, value, partition=index)
    producer.flush(60)
    started = time.perf_counter()
    for number in range(count):
        producer.produce(topic, value, partition=number % partitions)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError("records were not acknowledged")
    return count / (time.perf_counter() - started)


def small() -> None:
    """Send records one by one: what a request costs the broker, gathered or each on its own."""
    with broker("--durability", "os") as served:
        make_topic(served, "small", 4)
        for connections, in_flight, goal in ((4, 50, "<= 40"), (16, 1, "")):
            clients = [Client(served) for _ in range(connections)]
            exchange(clients, in_flight, 1.0)
            before = cpu(served.pid)
            count = exchange(clients, in_flight, 5.0)
            spent = (cpu(served.pid) - before) / count * 1e6
            what = f"small produce, {connections} connections x {in_flight} in flight, CPU"
            show(what, spent, "us", goal)
            for client in clients:
                client.socket.close()


def exchange(clients: Sequence[Client], in_flight: int, seconds: float) -> int:
    """Keep `in_flight` requests per client in flight for `seconds`; return the number answered."""
    selector = selectors.DefaultSelector()
    frames = [
        b"".join(request_frame(PRODUCE, 9, 1, "scale", produce_to("small", [index % 4])))
        for index in range(len(clients))
    ]
    for client, frame in zip(clients, frames, strict=True):
        selector.register(client.socket, selectors.EVENT_READ, (client, frame))
        client.socket.sendall(frame * in_flight)
    waiting, done, end = len(clients) * in_flight, 0, time.perf_counter() + seconds
    while waiting:
        for key, _ in selector.select():
            client, frame = key.data
            _check(client.receive(PRODUCE, 9))
            done += 1
            if time.perf_counter() < end:
                client.socket.sendall(frame)
            else:
                waiting -= 1
    selector.close()
    return done


def start() -> None:
    """Measure the time from the start of the process to its first answers."""
    with broker("--durability", "os") as served:
        served.stop()
        _start_times(served, "an empty log", "≤ 0.5")
    with broker("--durability", "os") as served:
        make_topic(served, "full", 10)
        producer = Producer({"bootstrap.servers": served.bootstrap, "linger.ms": 5})
        for number in range(LOG_BYTES // 1000):
            while True:
                try:
                    producer.produce("full", bytes(1000), partition=number % 10)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(120)
        size = sum(path.stat().st_size for path in served.folder.rglob("*") if path.is_file())
        show("bytes in the broker's folder", size / 1e6, "MB", "≥ 1 000")
        served.stop()
        _start_times(served, "1 GB of log, stopped in order", "≤ 1")
        served.kill()
        _start_times(served, "1 GB of log, killed", "≤ 1")


def _start_times(served: BrokerProcess, name: str, goal: str) -> None:
    begun = time.perf_counter()
    # It waits for the broker's word that it is ready, which comes later than the first answers.
    starting = Thread(target=served.start)
    starting.start()
    client = _connect(served)
    client.ask(API_VERSIONS, 3, _who())
    show(f"start with {name}: ApiVersions", time.perf_counter() - begun, "s", goal)
    client.ask(METADATA, 9, MetadataRequest(topics=None))
    show(f"start with {name}: Metadata", time.perf_counter() - begun, "s", goal)
    client.socket.close()
    starting.join()


def _connect(served: BrokerProcess) -> Client:
    while True:
        try:
            return Client(served)
        except ConnectionRefusedError:
            time.sleep(0.002)


PARTS: dict[str, Callable[[], None]] = {
    "memory": memory, "idle": idle, "spread": spread, "small": small, "start": start,
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    for name in parser.parse_args().only.split(","):
        if name not in PARTS:
            sys.exit(f"there is no part {name!r}; there are {', '.join(PARTS)}")
        PARTS[name]()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
