"""Rookery compared with a real Apache Kafka 4.3.1, in turns, in one run, with the same clients.

    python bench/broker.py [--rounds 2] [--quick] [--only rdkafka-produce-1k,…]

Four brokers, one at a time on an otherwise idle machine: Rookery and Kafka, each with and without a
sync to disk before an answer. Rates are what the client saw; CPU is the broker's own, user and
system. Ratios are Rookery's figure to Kafka's in the same round, the median over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rookery.testing.broker import BrokerProcess
from rookery.testing.java import FullJava, Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings

TICKS = os.sysconf("SC_CLK_TCK")
# Records of the end-to-end run that are not counted: a JVM that was just started takes a second
# for each of its first ones.
WARM_UP = 3000


def full_java() -> FullJava:
    """Find the machine's Java."""
    java = Java.find()
    return FullJava(java.program, java.libs)


@dataclass
class Served:
    """A broker that runs, and how to see what it costs."""

    name: str
    bootstrap: str
    pids: Callable[[], list[int]]

    def cpu(self) -> float:
        """Return the CPU seconds that its processes have used."""
        total = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS


@contextmanager
def rookery(durability: str) -> Iterator[Served]:
    """Run Rookery alone."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        flags = ["--durability", durability, "--partitions", "4"]
        with BrokerProcess(Path(folder) / "data", flags=flags) as broker:
            yield Served(f"rookery {durability}", broker.bootstrap, broker.worker_pids)
            broker.stop()


@contextmanager
def kafka(durability: str) -> Iterator[Served]:
    """Run Kafka alone."""
    synced = {"log.flush.interval.messages": "1"} if durability == "disk" else {}
    properties = {"num.partitions": "4", **synced}
    settings = KafkaSettings(properties=properties, heap_mb=1024)
    with KafkaServer(settings, java=full_java()) as server:
        yield Served(f"kafka {durability}", server.bootstrap, lambda: [server.pid])


# The clients run in processes of their own.


def child(*arguments: str) -> dict[str, float]:
    """Run one of the clients below and return what it printed."""
    done = subprocess.run(
        [sys.executable, __file__, "client", *arguments], check=True, capture_output=True, text=True
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def client(arguments: list[str]) -> None:
    """Be a client: produce, consume or latency."""
    kind, bootstrap, topic, count, size, *rest = arguments
    kinds: dict[str, Callable[..., dict[str, float]]] = {
        "produce": rd_produce, "consume": rd_consume, "latency": rd_latency,
    }  # fmt: skip
    print(json.dumps(kinds[kind](bootstrap, topic, int(count), int(size), *rest)))


def rd_produce(
    bootstrap: str, topic: str, count: int, size: int, partitions: str = "4", linger: str = "5"
) -> dict[str, float]:
    """Produce as fast as librdkafka can."""
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": linger,
            "queue.buffering.max.kbytes": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    value, errors = os.urandom(size), []
    producer.produce(topic, value=value, partition=0)
    producer.flush()

    def told(error: object, _message: object) -> None:
        if error is not None:
            errors.append(error)

    start = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic, value=value, partition=number % int(partitions), on_delivery=told
                )
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    spent = time.perf_counter() - start
    if errors:
        raise SystemExit(f"{len(errors)} records failed: {errors[0]}")
    return {"records/s": count / spent, "MB/s": count * size / spent / 1e6}


def rd_consume(
    bootstrap: str, topic: str, count: int, size: int, backoff_ms: str = "1000"
) -> dict[str, float]:
    """Consume all from the beginning.

    By default the client rests a second whenever its queue is full, which punishes the broker that
    fills it: with a short rest the brokers are compared instead.
    """
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": backoff_ms,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    received, start = 0, 0.0
    while received < count:
        messages = consumer.consume(10_000, 5)
        if not messages:
            raise SystemExit(f"only {received} of {count} records came")
        start = start or time.perf_counter()
        received += len(messages)
    spent = time.perf_counter() - start
    consumer.close()
    return {"records/s": count / spent, "MB/s": count * size / spent / 1e6}


def rd_latency(bootstrap: str, topic: str, count: int, size: int) -> dict[str, float]:
    """Send a thousand records a second, one by one, and time each until it is read."""
    from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: PLC0415

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce(topic, value=b"-" * size, partition=0)
    producer.flush()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 500,
         "enable.auto.commit": False, "socket.nagle.disable": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not consumer.poll(1):
        pass
    times: list[float] = []
    start = time.perf_counter()
    sent = 0
    count += WARM_UP
    while len(times) < count:
        now = time.perf_counter()
        while sent < count and now - start >= sent / 1000:
            stamp = b"%020d" % int(time.perf_counter() * 1e9)
            producer.produce(topic, value=stamp.ljust(size, b"."), partition=0)
            sent += 1
        producer.poll(0)
        message = consumer.poll(0.0005)
        if message is not None and message.error() is None:
            times.append(time.perf_counter() - int((message.value() or b"")[:20]) / 1e9)
        if now - start > count / 1000 + 30:
            raise SystemExit(f"only {len(times)} of {count} records came in time")
    times = sorted(times[WARM_UP:])
    return {"p50 ms": times[len(times) // 2] * 1e3, "p99 ms": times[int(len(times) * 0.99)] * 1e3}


# Kafka's own tools.

_RATE = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)")
_P99 = re.compile(r"([\d.]+) ms 99th")
_PERCENTILES = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+)")


def java_produce(java: Java, bootstrap: str, topic: str, count: int, size: int) -> dict[str, float]:
    """Run ProducerPerformance."""
    done = java.tool(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", str(count),
        "--record-size", str(size), "--throughput", "-1", "--producer-props",
        f"bootstrap.servers={bootstrap}", "acks=all", "linger.ms=5",
        timeout=600,
    )  # fmt: skip
    last = [line for line in done.stdout.splitlines() if "99th" in line][-1]
    rate, p99 = _RATE.search(last), _P99.search(last)
    if rate is None or p99 is None:
        raise SystemExit(f"cannot read {last!r}")
    mebibytes = float(rate[2])
    return {
        "records/s": float(rate[1]), "MB/s": mebibytes * 1.048576, "p99 ms": float(p99[1]),
    }  # fmt: skip


def java_consume(java: Java, bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """Run ConsumerPerformance; joining the group does not count."""
    done = java.tool(
        "kafka-consumer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic,
        "--num-records", str(count), "--timeout", "60000",
        timeout=600,
    )  # fmt: skip
    names, figures = (
        [field.strip() for field in line.split(",")]
        for line in done.stdout.splitlines()
        if line.count(",") > 5
    )
    row = dict(zip(names, figures, strict=True))
    return {
        "records/s": float(row["fetch.nMsg.sec"]),
        "MB/s": float(row["fetch.MB.sec"]) * 1.048576,
    }


def java_latency(java: Java, bootstrap: str, count: int) -> dict[str, float]:
    """Run EndToEndLatency: one record is sent when the one before was read; whole milliseconds."""
    done = java.tool(
        "kafka-e2e-latency", "--bootstrap-server", bootstrap, "--topic", "java-e2e",
        "--num-records", str(count), "--producer-acks", "all", "--record-size", "100",
        timeout=600,
    )  # fmt: skip
    percentiles = _PERCENTILES.search(done.stdout)
    if percentiles is None:
        raise SystemExit(f"cannot read {done.stdout[-200:]!r}")
    return {"p50 ms": float(percentiles[1]), "p99 ms": float(percentiles[2])}


@dataclass
class Scenario:
    """Something to do with a broker, and what of it is compared."""

    name: str
    run: Callable[[Served, Java, bool], dict[str, float]]
    better: str  # the figure that is compared
    is_lower_better: bool = False
    times: int = 1  # in every round, where one run takes a second or two


def scenarios() -> list[Scenario]:
    """List what is measured; consuming reads what producing 1 KB has left."""

    def produce(topic: str, count: int, size: int, *rest: str) -> Callable[..., dict[str, float]]:
        return lambda served, _java, quick: child(
            "produce", served.bootstrap, topic, str(count // (10 if quick else 1)), str(size), *rest
        )

    def consume(backoff_ms: int) -> Callable[..., dict[str, float]]:
        return lambda served, _java, quick: child(
            "consume", served.bootstrap, "rd1k", "50000" if quick else "500000", "1000",
            str(backoff_ms),
        )  # fmt: skip

    return [
        Scenario("librdkafka produce 1 KB", produce("rd1k", 500_000, 1000), "MB/s"),
        Scenario("librdkafka consume 1 KB, rests 2 ms", consume(2), "MB/s", times=3),
        Scenario("librdkafka consume 1 KB, rests 1 s", consume(1000), "MB/s", times=3),
        Scenario("librdkafka produce 100 B", produce("rd100", 1_000_000, 100), "MB/s"),
        Scenario(
            "100 partitions, linger 0, 100 B",
            produce("many", 200_000, 100, "100", "0"),
            "records/s",
        ),
        Scenario(
            "Java produce 1 KB",
            lambda served, java, quick: java_produce(
                java, served.bootstrap, "java1k", 30_000 if quick else 300_000, 1000
            ),
            "MB/s",
        ),
        Scenario(
            "Java consume 1 KB",
            lambda served, java, quick: java_consume(
                java, served.bootstrap, "java1k", 30_000 if quick else 300_000
            ),
            "MB/s",
            times=3,
        ),
        Scenario(
            "Java produce 100 B",
            lambda served, java, quick: java_produce(
                java, served.bootstrap, "java100", 100_000 if quick else 1_500_000, 100
            ),
            "MB/s",
        ),
        Scenario(
            "end to end at 1 000/s",
            lambda served, _java, quick: child(
                "latency", served.bootstrap, "e2e", "2000" if quick else "8000", "100"
            ),
            "p99 ms",
            is_lower_better=True,
        ),
        Scenario(
            "Java end to end, one by one",
            lambda served, java, quick: java_latency(
                java, served.bootstrap, 1_000 if quick else 10_000
            ),
            "p99 ms",
            is_lower_better=True,
        ),
    ]


SYSTEMS: dict[str, Callable[[], object]] = {
    "kafka os": lambda: kafka("os"),
    "rookery os": lambda: rookery("os"),
    "kafka disk": lambda: kafka("disk"),
    "rookery disk": lambda: rookery("disk"),
}


def measure(console: Console, rounds: int, wanted: list[str], *, quick: bool) -> Results:
    """Run everything on everyone, round by round."""
    java = full_java()
    results = Results()
    for number in range(rounds):
        for system, start in SYSTEMS.items():
            with start() as served:  # type: ignore[attr-defined] # a context manager
                make_topics(java, served)
                for scenario in scenarios():
                    if wanted and not any(part in scenario.name for part in wanted):
                        continue
                    for _ in range(scenario.times):
                        values = measure_once(scenario, served, java, quick=quick)
                        results.add(scenario.name, system, values)
                        shown = ", ".join(f"{key} {value:,.2f}" for key, value in values.items())
                        console.print(
                            f"round {number + 1}  {system:<13} {scenario.name:<32} {shown}"
                        )
    return results


def measure_once(
    scenario: Scenario, served: Served, java: Java, *, quick: bool
) -> dict[str, float]:
    """Run one scenario and add what it cost the broker."""
    before = served.cpu()
    values = scenario.run(served, java, quick)
    values["CPU s"] = served.cpu() - before
    if "MB/s" in values and "records/s" in values:
        size = values["MB/s"] * 1e6 / values["records/s"]
        count = amount(scenario.name, quick=quick)
        values["CPU s/GB"] = values["CPU s"] / (count * size / 1e9)
        values["CPU µs/record"] = values["CPU s"] / count * 1e6
    return values


_COUNTS = {
    "librdkafka produce 1 KB": 500_000, "librdkafka consume 1 KB, rests 2 ms": 500_000,
    "librdkafka consume 1 KB, rests 1 s": 500_000, "Java consume 1 KB": 300_000,
    "librdkafka produce 100 B": 1_000_000, "100 partitions, linger 0, 100 B": 200_000,
    "Java produce 1 KB": 300_000, "Java produce 100 B": 1_500_000,
}  # fmt: skip


def amount(scenario: str, *, quick: bool) -> int:
    """Return how many records a scenario sends."""
    if not quick:
        return _COUNTS[scenario]
    java = {"Java produce 1 KB": 30_000, "Java consume 1 KB": 30_000, "Java produce 100 B": 100_000}
    return java.get(scenario, _COUNTS[scenario] // 10)


def make_topics(java: Java, served: Served) -> None:
    """Make all topics before the clock runs."""
    for topic, partitions in (
        ("rd1k", 4), ("rd100", 4), ("many", 100), ("java1k", 4), ("java100", 4), ("e2e", 1),
        ("java-e2e", 1),
    ):  # fmt: skip
        java.tool(
            "kafka-topics", "--bootstrap-server", served.bootstrap, "--create", "--topic", topic,
            "--partitions", str(partitions), "--replication-factor", "1",
        )  # fmt: skip


class Results:
    """All figures, by scenario and system."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], list[dict[str, float]]] = {}

    def add(self, scenario: str, system: str, values: dict[str, float]) -> None:
        """Note what one run gave."""
        self._all.setdefault((scenario, system), []).append(values)

    def median(self, scenario: str, system: str, figure: str) -> float | None:
        """Return the median of a figure over the rounds."""
        runs = [run[figure] for run in self._all.get((scenario, system), []) if figure in run]
        return statistics.median(runs) if runs else None


COMPARED = (
    ("no sync on either side", "rookery os", "kafka os"),
    ("sync on both", "rookery disk", "kafka disk"),
    ("Rookery with sync, Kafka without", "rookery disk", "kafka os"),
)


def show(console: Console, results: Results) -> None:
    """Print the medians and the ratios."""
    for title, ours, theirs in COMPARED:
        table = Table(title=title)
        for name in ("scenario", "figure", ours, theirs, "ratio"):
            table.add_column(name, justify="left" if name in {"scenario", "figure"} else "right")
        for scenario in scenarios():
            for figure in ("MB/s", "records/s", "p50 ms", "p99 ms", "CPU s/GB", "CPU µs/record"):
                mine = results.median(scenario.name, ours, figure)
                other = results.median(scenario.name, theirs, figure)
                if mine is None or other is None:
                    continue
                ratio = f"{mine / other:.2f}" if other else "-"
                table.add_row(scenario.name, figure, f"{mine:,.2f}", f"{other:,.2f}", ratio)
        console.print(table)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--only", default="", help="parts of scenario names, parted by commas")
    arguments = parser.parse_args()
    console = Console(width=140)
    wanted = [part for part in arguments.only.split(",") if part]
    show(console, measure(console, arguments.rounds, wanted, quick=arguments.quick))


if __name__ == "__main__":
    main()
