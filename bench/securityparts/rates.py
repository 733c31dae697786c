"""Throughput of librdkafka over TLS."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from objectparts.figures import Figure

from securityparts.scene import Scene

SIZE = 1000
WARM_UPS = 2
"""Rounds that do not count: a JVM compiles its code while they run."""
TOPIC = "rates"
FLOOR, GOAL = 0.8, 1.2


def rates(scene: Scene) -> None:
    """Produce and consume in turns on both brokers; report medians."""
    runs: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for served in scene.brokers:
        served.make_topic(TOPIC)
    for number in range(WARM_UPS + scene.extent.rounds):
        is_warm_up = number < WARM_UPS
        name = "warm-up" if is_warm_up else f"round {number + 1 - WARM_UPS}"
        for kind in ("produce", "consume"):
            for served in scene.brokers:
                done = served.run(kind, topic=TOPIC, count=scene.extent.records, size=SIZE)
                scene.figures.say(f"rates: {name}: {served.name} {kind} {done['MB/s']:,.1f} MB/s")
                if not is_warm_up:
                    runs[kind, served.name].append(done["MB/s"])
    for kind in ("produce", "consume"):
        ours, theirs = (median(runs[kind, served.name]) for served in scene.brokers)
        scene.figures.add(
            Figure("rates", f"librdkafka {kind} 1 KB", ours, "MB/s", theirs, FLOOR, GOAL)
        )
