"""A driver that ends itself, without a word, before a step: `crashjob FOLDER STEP`.

It reads two partitions of 200 records each, 20 of each a batch, from where the manifests say.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from rookery.pipeline.engine import Engine, Plan
from rookery.pipeline.load import load
from rookery.pipeline.manifests import Manifests
from tests.pipeline.localrows import LocalRows, bird, raw

RECORDS = 200
STEP = 20
DECLARED = """
name = "birds"
[source]
data = "nowhere"
topics = ["birds"]
[topics.birds]
schema = "id long, name string"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
[[sinks]]
layer = "silver"
format = "iceberg"
location = "silver-iceberg"
[[sinks]]
layer = "silver"
format = "delta"
location = "silver-delta"
[[sinks]]
layer = "silver"
format = "duckdb"
location = "silver.duckdb"
name = "silver"
[[sinks]]
layer = "silver"
format = "parquet"
location = "silver-parquet"
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "dead"
"""


def value(partition: int, offset: int) -> bytes:
    """Return what a record holds; every tenth is broken."""
    number = partition * RECORDS + offset
    return b"{broken %d" % number if number % 10 == 7 else bird(number)


def main(folder: Path, last_step: str) -> None:
    """Run batches to the end, or to the step."""
    path = folder / "birds.toml"
    path.write_text(DECLARED)
    pipeline = load(path)
    manifests = Manifests(pipeline.state)
    origin = manifests.origin() or manifests.begin({"birds": {"0": 0, "1": 0}})
    engine = Engine(Plan.of(pipeline), pipeline.name, manifests, origin)
    engine.recover()

    def hook(step: str) -> None:
        # Keys of tables have this folder in them.
        if step.replace(str(folder), "") == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    engine.hook = hook
    while min(engine.ends()["birds"].values()) < RECORDS:
        engine.run(_rows(engine))


def _rows(engine: Engine) -> Any:
    batches = []
    for partition, begin in engine.ends()["birds"].items():
        offsets = range(begin, min(begin + STEP, RECORDS))
        values = [value(int(partition), offset) for offset in offsets]
        batches.append(raw(values, partition=int(partition), begin=begin))
    return LocalRows(batches)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
