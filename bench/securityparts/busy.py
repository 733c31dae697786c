"""Small produces of some clients while others send requests without a pause."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from objectparts.figures import Figure

from securityparts.logins import measure
from securityparts.scene import Scene, finish

TOPIC = "busy"
CLIENTS = 10


def busy(scene: Scene) -> None:
    """Measure both brokers in turns, and report the p99 of both."""
    extent = scene.extent
    runs: defaultdict[str, list[float]] = defaultdict(list)
    for served in scene.brokers:
        served.make_topic(TOPIC)
    for _ in range(extent.rounds):
        for served in scene.brokers:
            others = served.begin("busy", count=CLIENTS, seconds=extent.seconds + 2)
            runs[served.name].append(measure(served, extent.seconds, TOPIC))
            done = finish(others)
            scene.figures.say(
                f"busy: {served.name}: {done['requests/s']:.0f} requests/s of others, "
                f"p99 of a small produce {runs[served.name][-1]:.1f} ms"
            )
    ours, theirs = (median(runs[served.name]) for served in scene.brokers)
    what = f"p99 of small produces beside {CLIENTS} busy clients"
    scene.figures.add(Figure("busy", what, ours, "ms", theirs, is_less_better=True))
