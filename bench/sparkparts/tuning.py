"""What each tuning of Spark is worth: a scan and small tasks without any, with one, with all.

Settings of Java's processes are fixed when it starts, so each choice has a Java of its own; they
take turns, and of several turns the best counts. Processor time of all processes is counted next to
the time on the clock: it hardly depends on what else the host does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from objectparts.figures import Figure

from sparkparts.scene import Scene, drain, timed
from sparkparts.topics import both

_CHOICES: Final = ("", "worker-daemon", "rows-once", "arrow-unchecked", "all")
_TASKS: Final = 256
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def tuning(scene: Scene) -> None:
    """Measure every choice."""
    pair, before = both(scene, "none"), scene.tuning
    seen: dict[tuple[str, str], list[float]] = {}
    for turn in range(2):
        for choice in _CHOICES[:: -1 if turn else 1]:
            scene.tuning = choice
            scene.restart({}, with_java=True)
            _measure(
                scene, seen, choice, "row of a scan", lambda: drain(pair.log.read(scene.spark))
            )
            _measure(scene, seen, choice, "task of mapInArrow", lambda: _small_tasks(scene))
    scene.tuning = before
    scene.restart({}, with_java=True)
    for (name, what), spent in seen.items():
        if what.startswith("row"):
            value, plain, unit = min(spent) / scene.rows * 1e9, scene.rows * 1e-9, "ns"
        else:
            value, plain, unit = min(spent) / _TASKS * 1e3, _TASKS * 1e-3, "ms"
        peer = min(seen["", what]) / plain
        row = Figure("tuning", f"{name or 'none'}: {what}", value, unit, peer, is_less_better=True)
        scene.figures.add(row)


def _measure(
    scene: Scene,
    seen: dict[tuple[str, str], list[float]],
    choice: str,
    what: str,
    work: Callable[[], None],
) -> None:
    def on_processors(_: int) -> float:
        begun = _processor_seconds()
        work()
        return _processor_seconds() - begun

    clock, processors = scene.best(lambda _: timed(work), on_processors)
    seen.setdefault((choice, f"{what}, on the clock"), []).append(clock)
    seen.setdefault((choice, f"{what}, on processors"), []).append(processors)


def _small_tasks(scene: Scene) -> None:
    # Nested, so that Spark sends it to its workers, which do not know this folder.
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    drain(scene.spark.range(0, _TASKS, 1, _TASKS).mapInArrow(same, "id long"))


def _processor_seconds() -> float:
    """Return what this process and all that it has started have used so far."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(file.parent.name)] = int(words[1])
        ticks[int(file.parent.name)] = int(words[11]) + int(words[12])
    own = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(process, 0) for process in own) / _TICKS
