"""Reading a topic where nothing is compiled, against Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from sparkparts.scene import Scene, drain, timed
from sparkparts.topics import both

# Python runs a file of that name at its start; an entry of None is a module that is not there.
_WITHOUT: Final = """import sys
for name in (
    "records._columns", "records._kernel", "records._murmur", "records._sieve",
    "wire._codec", "decode._avro", "consumer._gather",
):
    sys.modules[f"rookery.{name}"] = None
"""


def fallback(scene: Scene) -> None:
    """Compare all of Kafka's columns, decoded in Python alone, with Parquet."""
    pair = both(scene, "none")
    with _without_native(scene.folder / "without"):
        scene.restart({}, with_java=True)
        _check(scene)
        parquet = scene.spark.read.parquet(pair.parquet)
        ours, theirs = scene.best(
            lambda _: timed(lambda: drain(pair.log.read(scene.spark))),
            lambda _: timed(lambda: drain(parquet)),
        )
    scene.restart({}, with_java=True)
    scene.add_rate("fallback", "all columns, in Python / parquet", (ours, theirs), (0.12, None))


@contextmanager
def _without_native(folder: Path) -> Iterator[None]:
    """Let every Python that is started by a new Java find no compiled decoder."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_WITHOUT)
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), before)))
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = before


def _check(scene: Scene) -> None:
    """Check that Spark's workers have none."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from rookery import native  # noqa: PLC0415 (in the worker)
        from rookery.records import columns  # noqa: F401, PLC0415 (it asks for its own)

        for _ in batches:
            report = [
                [module.native for module in native.report()],
                [module.reason for module in native.report()],
            ]
            yield pa.record_batch(report, names=["module", "reason"])

    rows = scene.spark.range(0, 1, 1, 1).mapInArrow(look, "module string, reason string").collect()
    if not rows or not all(row.reason for row in rows):
        raise RuntimeError(f"Spark's workers have compiled modules: {rows}")
