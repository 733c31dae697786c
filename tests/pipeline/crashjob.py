"""A driver that exits without a message before a step: `crashjob FOLDER STEP [upsert]`.

It reads two partitions of 200 records each, 20 of each a batch, from where the manifests say. With
`upsert` rows replace others of their key; then it may also end in the middle of such tasks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rookery.pipeline.batch.engine import BatchEngine, BatchPlan
from rookery.pipeline.declaration.load import load
from rookery.pipeline.manifests import Manifests
from rookery.tables.port import here
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
{silver}
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


UPSERT = '[silver]\nmode = "upsert"\nkeys = ["id"]\nupsert-task-bytes = 1500\n'
KEYS = 30


def value(partition: int, offset: int) -> bytes:
    """Return what a record holds; every tenth is broken."""
    number = partition * RECORDS + offset
    return b"{broken %d" % number if number % 10 == 7 else bird(number)


def change(partition: int, offset: int) -> bytes:
    """Return a record that replaces others; every tenth is broken."""
    key = partition * KEYS + offset % KEYS
    return b"{broken" if offset % 10 == 7 else bird(key, name=f"bird at {offset}")


def main(folder: Path, last_step: str, mode: str = "append") -> None:
    """Run batches to the end, or to the step."""
    path = folder / "birds.toml"
    path.write_text(DECLARED.replace("{silver}", UPSERT if mode == "upsert" else ""))
    made = change if mode == "upsert" else value
    pipeline = load(path)
    manifests = Manifests(pipeline.state)
    origin = manifests.origin() or manifests.begin({"birds": {"0": 0, "1": 0}})
    engine = BatchEngine(BatchPlan.of(pipeline), pipeline.name, manifests, origin)

    def hook(step: str) -> None:
        # Keys of tables have this folder in them.
        if step.replace(str(folder), "") == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    def run_tasks(tasks: Sequence[Any]) -> list[Any]:
        results = here(tasks[:1])
        if len(tasks) > 1:
            hook(type(tasks[0]).__name__)  # when some of them are done
        return results + here(tasks[1:])

    engine.run_tasks = run_tasks
    engine.recover()
    engine.hook = hook
    while min(engine.ends()["birds"].values()) < RECORDS:
        engine.run(_rows(engine, made))


def _rows(engine: BatchEngine, value: Callable[[int, int], bytes]) -> Any:
    batches = []
    for partition, begin in engine.ends()["birds"].items():
        offsets = range(begin, min(begin + STEP, RECORDS))
        values = [value(int(partition), offset) for offset in offsets]
        batches.append(raw(values, partition=int(partition), begin=begin))
    return LocalRows(batches)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
