"""Rows of a topic in the order of time, against kafkarrow and confluent-kafka on the same Kafka.

    python bench/consumer.py [--rows 1000000] [--rounds 3] [--quick] [--json]

Each reader is a process of its own that reads the whole topic into Arrow columns, in turns with the
others; CPU seconds are the reader's alone, and of several rounds the best counts. Rows have a key
of 8 bytes and a value of 100, uncompressed, times interleaved over all partitions. Late rows are
those that came after one of a later time; confluent-kafka promises no order. The time to the first
row is measured over a way whose round trips take 400 ms, connecting included, on a topic of few
rows: an answer takes no time besides its way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from consumerparts.readers import MEBIBYTE, PEERS, READERS
from objectparts.figures import Figure, Figures
from rich.console import Console

from broker import full_java
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, pack_rows
from rookery.testing.kafkaproxy import KafkaProxy

FLOORS: Final = {(4, "kafkarrow"): 4.0, (512, "kafkarrow"): 6.0, (4, "confluent"): 6.0}
RTT_MS: Final = 400.0
ROUND_TRIPS: Final = 6.0
FEW_ROWS: Final = 20
SMALL: Final = 64 * MEBIBYTE
# What a producer that lingers for some time makes of a busy and of a quiet partition.
BATCH_ROWS: Final = {4: 5_000, 512: 500}
VALUE_BYTES: Final = 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    parser.add_argument("--partitions", default="4,512", help="the topics' sizes")
    parser.add_argument("--readers", default=",".join(PEERS), help=f"of {', '.join(READERS)}")
    parser.add_argument("--quick", action="store_true", help="100 000 rows, one round")
    parser.add_argument("--json", action="store_true", help="the figures as JSON, progress aside")
    args = parser.parse_args()
    rows, rounds = (100_000, 1) if args.quick else (args.rows, args.rounds)
    figures = Figures(Console(width=150, stderr=args.json))
    with KafkaServer(java=full_java()) as server, Logs(server.bootstrap) as logs:
        for partitions in map(int, args.partitions.split(",")):
            topic = fill(logs, rows, partitions)
            compare(figures, server.bootstrap, topic, (rows, partitions, rounds), args.readers)
            few = fill(logs, FEW_ROWS * partitions, partitions)
            shape = FEW_ROWS * partitions, partitions
            first_rows(figures, server.bootstrap, few, shape, args.readers)
    if args.json:
        print(json.dumps(figures.as_json()))
    else:
        figures.show(f"{rows:,} rows, best of {rounds}, load {os.getloadavg()[0]:.1f} at the end")


def fill(logs: Logs, rows: int, partitions: int) -> str:
    """Make a topic whose partitions all cover the same time."""
    topic = logs.create("bench", partitions)
    each = rows // partitions
    step = BATCH_ROWS.get(partitions, 500)
    noise = np.random.default_rng(1)
    for start in range(0, each, step):
        count = min(step, each - start)
        times = NOON + (np.arange(start, start + count) * partitions) // 100
        batch = pack_rows(
            pa.record_batch(
                {
                    "key": _bytes(noise, count, 8),
                    "value": _bytes(noise, count, VALUE_BYTES),
                    "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
                }
            )
        )
        for first in range(0, partitions, 64):
            logs.append(topic, dict.fromkeys(range(first, min(first + 64, partitions)), batch))
    return topic


def compare(
    figures: Figures, bootstrap: str, topic: str, shape: tuple[int, int, int], readers: str
) -> None:
    """Let all read the topic in turns."""
    rows, partitions, rounds = shape
    wanted = rows // partitions * partitions
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name in readers.split(","):
            run_figures = run(name, bootstrap, topic, wanted)
            if run_figures["rows"] != wanted:
                raise RuntimeError(f"{name} read {run_figures['rows']} of {wanted} rows")
            if name not in best or run_figures["cpu"] < best[name]["cpu"]:
                best[name] = run_figures
    part = f"{partitions} partitions"
    rates = {
        name: run_figures["rows"] / run_figures["cpu"] / 1e6 for name, run_figures in best.items()
    }
    for name, run_figures in best.items():
        what = f"{name}, {run_figures['late'] / wanted:.1%} late, {run_figures['seconds']:.1f} s"
        figures.add(Figure(part, what, rates[name], "M rows/CPU s"))
    if "rookery" not in best:
        return
    for name in [other for other in best if other != "rookery"]:
        floor = FLOORS.get((partitions, name))
        figures.add(Figure(part, f"rookery / {name}", rates["rookery"], "M", rates[name], floor))
    _memory(figures, part, run("rookery", bootstrap, topic, wanted, str(SMALL)))


def first_rows(
    figures: Figures, bootstrap: str, topic: str, shape: tuple[int, int], readers: str
) -> None:
    """Measure how many round trips pass before the first row."""
    rows, partitions = shape
    with KafkaProxy(bootstrap) as proxy:
        proxy.rtt_ms = dict.fromkeys(proxy.nodes, RTT_MS)
        for name in readers.split(","):
            if name == "confluent":
                continue  # it waits for 10 000 rows
            if name == "kafkarrow" and partitions > 64:
                continue  # it asks for one partition after the other, which takes minutes
            run_figures = run(name, proxy.bootstrap, topic, rows // partitions * partitions)
            floor = ROUND_TRIPS if name == "rookery" else None
            # A fraction of a round trip is work, not waiting.
            trips = run_figures["first"] * 1000 // RTT_MS
            figures.add(
                Figure(
                    f"{partitions} partitions",
                    f"{name}: first row, of {RTT_MS:.0f} ms each",
                    trips,
                    "round trips",
                    floor=floor,
                    is_less_better=True,
                )
            )


def run(name: str, bootstrap: str, topic: str, rows: int, *more: str) -> dict[str, float]:
    """Run one reader in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "consumerparts.readers",
        name,
        bootstrap,
        topic,
        str(rows),
        *more,
    ]
    folder = Path(__file__).parent
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    run_figures: dict[str, float] = json.loads(done.stdout)
    return run_figures


def _memory(figures: Figures, part: str, run_figures: dict[str, float]) -> None:
    allowed = (SMALL + run_figures["largest"] + 64 * MEBIBYTE) / MEBIBYTE
    figures.add(
        Figure(
            part,
            f"growth with memory={SMALL // MEBIBYTE} MiB",
            run_figures["grown"] / MEBIBYTE,
            "MiB",
            floor=round(allowed),
            is_less_better=True,
        )
    )


def _bytes(noise: np.random.Generator, count: int, width: int) -> pa.Array[Any]:
    data = pa.py_buffer(noise.bytes(count * width))
    return pa.Array.from_buffers(pa.binary(width), count, [None, data]).cast(pa.binary())


if __name__ == "__main__":
    main()
