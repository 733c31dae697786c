"""How long a live row takes from `produce` to `poll` of `rookery.kafkars`, with idle partitions.

    python bench/live.py [--rows 200] [--partitions 8] [--bootstrap HOST:PORT] [--json]

A topic has a row in each partition; two of them get more, one row at a time, acknowledged before a
poll. The others stay at the end that they had at the start. Without `--bootstrap` a broker of
our own is started. The first figure is the time of the replay up to that end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from confluent_kafka import Producer
from objectparts.figures import Figure, Figures
from rich.console import Console

from rookery.kafkars import ConsumerManager, SourceTopic
from rookery.testing.kafkalogs import Logs
from rookery.testing.servedbroker import ServedBroker

MEDIAN_MS: Final = 20.0
ACTIVE: Final = 2
PATIENCE_SECONDS: Final = 60.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--bootstrap", default="", help="any Kafka; default: a broker of our own")
    parser.add_argument("--json", action="store_true", help="the figures as JSON, progress aside")
    args = parser.parse_args()
    figures = Figures(Console(width=150, stderr=args.json))
    with _cluster(args.bootstrap) as bootstrap:
        measure(figures, bootstrap, args.rows, args.partitions)
    if args.json:
        print(json.dumps(figures.as_json()))
    else:
        figures.show(f"{args.rows} live rows, load {os.getloadavg()[0]:.1f} at the end")


@contextmanager
def _cluster(bootstrap: str) -> Iterator[str]:
    if bootstrap:
        yield bootstrap
        return
    with tempfile.TemporaryDirectory() as folder, ServedBroker(Path(folder)) as broker:
        yield broker.bootstrap


def measure(figures: Figures, bootstrap: str, rows: int, partitions: int) -> None:
    """Produce row by row, and wait for each."""
    with Logs(bootstrap) as logs:
        topic = logs.create("live", partitions)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for partition in range(partitions):
        producer.produce(topic, b"first", partition=partition)
    producer.flush()
    sources = [SourceTopic.from_earliest(topic)]
    with ConsumerManager({"bootstrap.servers": bootstrap}, sources) as manager:
        began = perf_counter()
        _await(manager, partitions)
        figures.add(Figure("kafkars", "replay", (perf_counter() - began) * 1000, "ms"))
        taken = [_one(producer, topic, number % ACTIVE, manager) for number in range(rows)]
    median = statistics.median(taken)
    name = "live row, median"
    figures.add(Figure("kafkars", name, median, "ms", floor=MEDIAN_MS, is_less_better=True))
    figures.add(Figure("kafkars", "live row, worst", max(taken), "ms"))


def _one(producer: Producer, topic: str, partition: int, manager: ConsumerManager) -> float:
    began = perf_counter()
    producer.produce(topic, b"live", partition=partition)
    producer.flush()
    _await(manager, 1)
    return (perf_counter() - began) * 1000


def _await(manager: ConsumerManager, rows: int) -> None:
    until = perf_counter() + PATIENCE_SECONDS
    while rows > 0:
        if perf_counter() > until:
            raise TimeoutError(f"{rows} rows did not come: {manager.partitions()}")
        rows -= manager.poll(1000).num_rows


if __name__ == "__main__":
    main()
