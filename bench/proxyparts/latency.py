"""Latency from end to end at 1 000 records a second, alone and under load."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

from broker import child, java_produce
from proxyparts.figures import P50, P99, Bar, Figure
from proxyparts.rig import DIRECT, OURS, PEER, Route
from proxyparts.scene import Scene
from rookery.testing.java import TOOLS

_LOAD: Final = "latency-load"
_ALONE: Final = "latency at 1 000/s"
_SIZE: Final = 100
_RECORDS: Final = 8000
# With fewer, the 99th percentile is that of a handful of records.
_FEWEST: Final = 2000
_FIGURES: Final[dict[str, Bar]] = {"p50 ms": P50, "p99 ms": P99}
_numbers = count()


def latency(scene: Scene) -> None:
    """Measure what each proxy adds, alone and while a producer uses half of what Kafka can take."""
    with scene.rig.routes() as routes:
        if scene.wants(_ALONE):
            _compare(scene, routes, _ALONE, None)
        if scene.wants("latency at half load"):
            scene.rig.make_topic(_LOAD, 4)
            rate = _half_rate(scene, routes[0])
            scene.figures.say(f"half load: {rate:,} records of 1 KB a second")
            _compare(scene, routes, "latency at half load", rate)
            scene.rig.delete_topic(_LOAD)


def _half_rate(scene: Scene, direct: Route) -> int:
    """Return half of the records a second that a Java producer sends to Kafka directly."""
    for _ in range(scene.warm_ups + 1):
        amount = scene.scale(300_000)
        values = java_produce(scene.rig.java, direct.bootstrap, _LOAD, amount, 1000)
    return int(values["records/s"] / 2)


def _compare(scene: Scene, routes: list[Route], title: str, rate: int | None) -> None:
    runs: dict[str, list[dict[str, float]]] = {route.name: [] for route in routes}
    for number, route in scene.turns(routes, is_warm=rate is not None and scene.wants(_ALONE)):
        with _load(scene, route, rate):
            values = _measure(scene, route)
        scene.tell(number, route, title, values)
        if number >= 0:
            runs[route.name].append(values)
    for figure, bar in _FIGURES.items():
        direct, ours, peer = (
            statistics.median(run[figure] for run in runs[name]) for name in (DIRECT, OURS, PEER)
        )
        row = Figure(
            f"{title}: {figure.split()[0]}", "ms", direct, ours, peer,
            ours_to_direct=ours - direct, peer_to_direct=peer - direct, bar=bar,
        )  # fmt: skip
        scene.figures.add(row)


def _measure(scene: Scene, route: Route) -> dict[str, float]:
    # A topic of its own: the client reads it from the beginning.
    topic = f"latency-{next(_numbers)}"
    scene.rig.make_topic(topic, 1)
    amount = max(_FEWEST, scene.scale(_RECORDS))
    values = child("latency", route.bootstrap, topic, str(amount), str(_SIZE))
    scene.rig.delete_topic(topic)
    return values


@contextmanager
def _load(scene: Scene, route: Route, rate: int | None) -> Iterator[None]:
    """Produce at a rate through the same route while the block runs; at none without a rate."""
    if rate is None:
        yield
        return
    arguments = (
        "--topic", _LOAD, "--num-records", str(2**31 - 1), "--record-size", "1000",
        "--throughput", str(rate), "--producer-props",
        f"bootstrap.servers={route.bootstrap}", "acks=all", "linger.ms=5",
    )  # fmt: skip
    command = scene.rig.java.command(TOOLS["kafka-producer-perf-test"], *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tool:
        try:
            # It reports every five seconds; by the first report it is warm.
            if not tool.stdout or not tool.stdout.readline():
                raise SystemExit(f"the load through {route.name} has ended")
            yield
        finally:
            tool.kill()
