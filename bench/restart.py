"""What clients notice of brokers that are restarted one after the other, or killed.

    python bench/restart.py                     three brokers over a folder, restarted in order
    python bench/restart.py --backend etcd+s3   over S3 and etcd
    python bench/restart.py --kill              the coordinator of the group gets kill -9 instead
    python bench/restart.py --java              Kafka's own producer in addition, of 200 a second

An idempotent producer sends 200 records a second to 12 partitions, and a group of two consumers
reads and commits them. Printed are how long records took to be acknowledged, from when they were
produced until they were consumed, and the longest time without a commit of each consumer.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.testing.backends import KINDS, ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.java import TOOLS, Java

TOPIC, GROUP, PARTITIONS, RATE = "restarts", "readers", 12, 200
CALM_SECONDS = 4.0


class Clock:
    """Durations that were measured, each with the moment at which it began."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.seconds: list[float] = []

    def add(self, began: float) -> None:
        """Note that something that began then has ended now."""
        self.began.append(began)
        self.seconds.append(time.monotonic() - began)

    def since(self, start: float) -> list[float]:
        """Return the durations of what began after a moment, shortest first."""
        pairs = zip(self.began, self.seconds, strict=True)
        return sorted(seconds for began, seconds in pairs if began >= start)


class Load:
    """The producer and the consumers, each in a thread."""

    def __init__(self, bootstrap: str, *, members: int = 2) -> None:
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self.errors: list[str] = []
        self.acknowledged, self.consumed, self.commits = Clock(), Clock(), Clock()
        self._threads = [threading.Thread(target=self._produce)]
        self._threads += [threading.Thread(target=self._consume) for _ in range(members)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True,
                    "linger.ms": 0, "log_level": 0}  # fmt: skip
        producer = Producer(settings)

        def delivered(began: float, error: KafkaError | None) -> None:
            if error is not None:
                self.errors.append(str(error))
            self.acknowledged.add(began)

        number = 0
        while not self._is_over.wait(1 / RATE):
            now = time.monotonic()
            producer.produce(
                TOPIC, str(now).encode(), partition=number % PARTITIONS,
                on_delivery=lambda error, _, began=now: delivered(began, error),
            )  # fmt: skip
            producer.poll(0)
            number += 1
        producer.flush(60)

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "log_level": 0,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([TOPIC])
        last = time.monotonic()
        while not self._is_over.is_set():
            messages = [
                message for message in consumer.consume(1000, 0.1) if message.error() is None
            ]
            for message in messages:
                self.consumed.add(_produced(message))
            if messages and self._committed(consumer):
                self.commits.add(last)
                last = time.monotonic()
        consumer.close()

    def _committed(self, consumer: Consumer) -> bool:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.errors.append(str(error))
            return False
        return True


def _produced(message: Message) -> float:
    return float(message.value() or b"0")


@contextmanager
def brokers(backend: str, folder: Path, count: int = 3) -> Iterator[list[BrokerProcess]]:
    """Run brokers of one cluster."""
    with ExitStack() as stack:
        flags: list[str] = []
        if backend != "folder":
            servers = stack.enter_context(ServerBackend(backend))
            flags = ["--store", servers.store("restarts")]
            flags += ["--cluster", servers.cluster("restarts")] if servers.cluster("x") else []
        started = [
            BrokerProcess(folder / "data", flags=[*flags, "--node-id", str(number + 1)])
            for number in range(count)
        ]
        for number, broker in enumerate(started):
            broker.log = folder / f"broker-{number + 1}.log"
            stack.enter_context(broker)
        yield started


def restart(running: Sequence[BrokerProcess], pause: float) -> None:
    """Stop and start one broker after the other."""
    for broker in running:
        began = time.monotonic()
        broker.stop(30)
        stopped = time.monotonic()
        time.sleep(pause)
        broker.start()
        print(
            f"  stopped in {stopped - began:.1f} s, ready {time.monotonic() - stopped:.1f} s later"
        )
        time.sleep(CALM_SECONDS)


def kill(running: Sequence[BrokerProcess], admin: AdminClient) -> None:
    """Kill the coordinator, and leave it dead."""
    described = admin.describe_consumer_groups([GROUP])[GROUP].result()
    victim = next(broker for broker in running if broker.port == described.coordinator.port)
    victim.kill()
    time.sleep(5 * CALM_SECONDS)


def start_java(bootstrap: str) -> subprocess.Popen[str]:
    """Start Kafka's producer, which prints its latencies now and then."""
    flags = ["--topic", f"{TOPIC}-java", "--num-records", "1000000", "--record-size", "100"]
    flags += ["--throughput", str(RATE), "--producer-props", f"bootstrap.servers={bootstrap}"]
    command = Java.find().command(TOOLS["kafka-producer-perf-test"], *flags)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def worst_of(java: subprocess.Popen[str]) -> str:
    """End Kafka's producer; return the worst latency of each line that it printed."""
    java.send_signal(signal.SIGINT)
    # The first line has the start of the program.
    return " ".join(re.findall(r"([\d.]+) ms max latency\.", java.communicate()[0])[1:])


def main() -> None:
    """Run the brokers and the load, harm the former and print what the latter noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("folder", *KINDS), default="folder")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--java", action="store_true", help="also with Kafka's own producer")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds from stop to start")
    parser.add_argument("--keep", type=Path, help="a folder for data and logs, which stays")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        running = stack.enter_context(brokers(args.backend, folder))
        bootstrap = ",".join(broker.bootstrap for broker in running)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for topic in (TOPIC, f"{TOPIC}-java"):
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
        with Load(bootstrap) as load:
            java = start_java(bootstrap) if args.java else None
            time.sleep(2 * CALM_SECONDS)
            start = time.monotonic()
            if args.kill:
                kill(running, admin)
            else:
                restart(running, args.pause)
        show("acknowledged after", load.acknowledged.since(start))
        show("consumed after", load.consumed.since(start))
        show("between commits", load.commits.since(start - 1))
        if java is not None:
            print(f"Kafka's producer: worst of each five seconds, in ms: {worst_of(java)}")
        print(f"errors: {len(load.errors)} {sorted(set(load.errors))[:3]}")


def show(what: str, seconds: Sequence[float]) -> None:
    """Print the middle, the 99th percentile and the worst."""
    middle, late, worst = (seconds[int((len(seconds) - 1) * share)] for share in (0.5, 0.99, 1))
    print(f"{what:20} p50 {middle:7.3f} s   p99 {late:7.3f} s   worst {worst:7.3f} s")


if __name__ == "__main__":
    main()
