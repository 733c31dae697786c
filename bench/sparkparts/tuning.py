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

Spent = dict[tuple[str, str], list[float]]
"""What a choice needed for a piece of work, in each turn."""


def tuning(scene: Scene) -> None:
    """Measure every choice."""
    pair, before = both(scene, "none"), scene.tuning
    processors, seen = ProcessorTime(), Spent()
    for turn in range(2):
        for choice in _CHOICES[:: -1 if turn else 1]:
            scene.tuning = choice
            scene.restart({}, with_java=True)
            works = {
                "row of a scan": lambda: drain(pair.log.read(scene.spark)),
                "task of mapInArrow": lambda: _small_tasks(scene),
            }
            for what, work in works.items():
                clock, busy = _measure(scene, processors, work)
                seen.setdefault((choice, f"{what}, on the clock"), []).append(clock)
                seen.setdefault((choice, f"{what}, on processors"), []).append(busy)
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
    scene: Scene, processors: ProcessorTime, work: Callable[[], None]
) -> tuple[float, float]:
    """Return the seconds that a piece of work takes on the clock, and of all processors."""

    def on_processors(_: int) -> float:
        begun = processors.seconds()
        work()
        return processors.seconds() - begun

    clock, busy = scene.best(lambda _: timed(work), on_processors)
    return clock, busy


def _small_tasks(scene: Scene) -> None:
    # Nested, so that Spark sends it to its workers, which do not know this folder.
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    drain(scene.spark.range(0, _TASKS, 1, _TASKS).mapInArrow(same, "id long"))


class ProcessorTime:
    """The processor time of this process and of all that it has started, whether they live on."""

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, str], int] = {}

    def seconds(self) -> float:
        """Return the time so far; of a process that has ended, the time when it was last seen."""
        parents: dict[int, int] = {}
        seen: dict[int, tuple[str, int]] = {}
        for file in Path("/proc").glob("[0-9]*/stat"):
            try:
                words = file.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(file.parent.name)] = int(words[1])
            # Numbers of processes are used again: the time of the start tells them apart.
            seen[int(file.parent.name)] = words[19], int(words[11]) + int(words[12])
        own = {os.getpid()}
        while more := {child for child, parent in parents.items() if parent in own} - own:
            own |= more
        self._ticks |= {(process, seen[process][0]): seen[process][1] for process in own}
        # A process whose parent has ended is no longer found, but continues to run.
        for process, start in self._ticks:
            if process in seen and seen[process][0] == start:
                self._ticks[process, start] = seen[process][1]
        return sum(self._ticks.values()) / _TICKS
