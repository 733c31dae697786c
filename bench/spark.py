"""Topics on Spark compared with what Spark does itself: Parquet, its Kafka source, groupBy, sort.

    python bench/spark.py [--only scan,kafka] [--rows 2000000] [--quick] [--json]

Two cores of this host; the log is a folder, and its brokers are stopped. Both sides of a ratio were
measured in the same run, in turns, and of several rounds the best counts. Values are 100 random
hexadecimal digits. Parquet has the codec of the topic and is in the same folder; a topic's
objects are synced to the disk, which Spark does not do with Parquet.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from objectparts.figures import Figures
from rich.console import Console
from sparkparts.batches import batches
from sparkparts.compaction import compaction
from sparkparts.fallback import fallback
from sparkparts.freshness import freshness
from sparkparts.ingest import ingest
from sparkparts.order import order
from sparkparts.scans import find_connector, kafka, offsets, scan
from sparkparts.scene import Scene
from sparkparts.sink import sink
from sparkparts.slices import slices
from sparkparts.tables import tables
from sparkparts.tasks import tasks
from sparkparts.tuning import tuning

PARTS: dict[str, Callable[[Scene], None]] = {
    "scan": scan, "kafka": kafka, "offsets": offsets, "slices": slices, "tasks": tasks,
    "batches": batches, "sink": sink, "compaction": compaction, "order": order,
    "ingest": ingest, "tables": tables, "fallback": fallback, "freshness": freshness,
    "tuning": tuning,
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 bytes each")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    parser.add_argument("--commits", type=int, default=5000, help="before freshness is measured")
    parser.add_argument("--tuning", default="all", help="of Spark; '' is what users start with")
    parser.add_argument("--quick", action="store_true", help="100 000 rows, one cold round")
    parser.add_argument("--json", action="store_true", help="the figures as JSON, progress aside")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := set(names) - set(PARTS):
        sys.exit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    figures = Figures(Console(width=150, stderr=arguments.json))
    rows, rounds = (100_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder:
        commits = 20 if arguments.quick else arguments.commits
        scene = Scene(
            figures, Path(folder), rows, rounds, arguments.quick, commits, tuning=arguments.tuning
        )
        _measure(scene, names)
    if arguments.json:
        print(json.dumps(figures.as_json()))
    else:
        figures.show(
            f"Spark on 2 cores, {rows:,} rows, best of {rounds}, load {_load()} at the end"
        )


def _measure(scene: Scene, names: list[str]) -> None:
    if "kafka" in names:
        find_connector(scene)
    try:
        for name in names:
            scene.figures.say(f"{name}: load of the machine {_load()}")
            PARTS[name](scene)
    finally:
        scene.stop()


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main()
