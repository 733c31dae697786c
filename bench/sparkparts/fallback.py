"""Reading a topic where nothing is compiled, against Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparkparts.scene import Scene, drain, timed
from sparkparts.topics import both

# Python runs a file of that name at its start; an entry of None is a module that is not there.
_WITHOUT: Final = """import sys
for name in ("columns", "kernel", "murmur", "sieve"):
    sys.modules[f"rookery.records._{name}"] = None
"""


def fallback(scene: Scene) -> None:
    """Compare all of Kafka's columns, decoded in Python alone, with Parquet."""
    found = both(scene, "none")
    with _without_native(scene.folder / "without"):
        scene.restart({})
        parquet = scene.spark.read.parquet(found.parquet)
        ours, theirs = scene.best(
            lambda _: timed(lambda: drain(found.log.read(scene.spark))),
            lambda _: timed(lambda: drain(parquet)),
        )
    scene.restart({})
    scene.add_rate("fallback", "all columns, in Python / parquet", (ours, theirs), (0.12, None))


@contextmanager
def _without_native(folder: Path) -> Iterator[None]:
    """Let every Python that is started meanwhile find no compiled decoder."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_WITHOUT)
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), before)))
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = before
