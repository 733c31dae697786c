"""Fetch of a cold partition in Kafka's own directory: our broker compared with Kafka 4.3.1.

    python bench/logdir.py [--gigabytes 1] [--rounds 3]

A real Kafka writes a partition. Then both serve the same directory in turns, each to the same
client (librdkafka): once to warm up, then with the files dropped from the system's memory. The
ratio is ours to Kafka's in the same round; the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rookery.testing.broker import BrokerProcess
from rookery.testing.java import FullJava, Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings

TOPIC = "cold"
RECORD_BYTES = 1000


def fill(bootstrap: str, count: int) -> None:
    """Write the partition."""
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 200_000,
        }
    )
    value = os.urandom(RECORD_BYTES)
    for _ in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(300):
        raise SystemExit("not all records were written")


def consume(bootstrap: str, count: int) -> float:
    """Read it all, in a process of its own; return the megabytes a second."""
    command = [sys.executable, __file__, "client", bootstrap, str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def client(bootstrap: str, count: int) -> None:
    """Be the client."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    received, start = 0, time.perf_counter()
    while received < count:
        messages = consumer.consume(10_000, 10)
        if not messages:
            raise SystemExit(f"only {received} of {count} records came")
        received += len(messages)
    spent = time.perf_counter() - start
    consumer.close()
    print(json.dumps(count * RECORD_BYTES / spent / 1e6))


def forget(folder: Path) -> None:
    """Drop the files of a directory from the system's memory."""
    for path in folder.rglob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@contextmanager
def kafka(server: KafkaServer) -> Iterator[str]:
    """Let Kafka have the directory."""
    server.start()
    try:
        yield server.bootstrap
    finally:
        server.stop()


@contextmanager
def rookery(server: KafkaServer) -> Iterator[str]:
    """Let our broker have it."""
    flags = ["--log-dir", str(server.data), "--read-only"]
    with BrokerProcess(server.data.parent / "rookery", flags=flags) as broker:
        yield broker.bootstrap
        broker.stop()


def measure(server: KafkaServer, count: int, rounds: int) -> list[tuple[float, float]]:
    """Let both serve, in turns; return what each was read at, cold."""
    rates_of_rounds = []
    for _ in range(rounds):
        rates = []
        for serve in (rookery, kafka):
            with serve(server) as bootstrap:
                consume(bootstrap, count // 4)
                forget(server.data)
                rates.append(consume(bootstrap, count))
        rates_of_rounds.append((rates[0], rates[1]))
    return rates_of_rounds


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2], int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    count = int(args.gigabytes * 1e9 / RECORD_BYTES)
    machine_java = Java.find()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = KafkaSettings(
            properties={"num.partitions": "1", "log.retention.ms": "-1"}, heap_mb=1024
        )
        java = FullJava(machine_java.program, machine_java.libs)
        server = KafkaServer(settings, folder=Path(folder), java=java)
        with kafka(server) as bootstrap:
            fill(bootstrap, count)
        rates = measure(server, count, args.rounds)
    table = Table("round", "rookery MB/s", "kafka MB/s", "ratio")
    for number, (ours, theirs) in enumerate(rates, 1):
        table.add_row(str(number), f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}")
    median = statistics.median(ours / theirs for ours, theirs in rates)
    table.add_row("median", "", "", f"{median:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
