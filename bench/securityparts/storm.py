"""Many clients that connect at once."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from objectparts.figures import Figure

from securityparts.scene import Scene


def storm(scene: Scene) -> None:
    """Measure both brokers in turns; the first round warms up."""
    runs: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(1 + scene.extent.rounds):
        for served in scene.brokers:
            done = served.run("storm", count=scene.extent.clients)
            scene.figures.say(
                f"storm: {'warm-up' if not number else f'round {number}'}: {served.name}: all in "
                f"after {done['seconds']:.2f} s, {done['failed']:.0f} attempts failed, "
                f"p50 {done['p50 ms']:.0f} ms, p99 {done['p99 ms']:.0f} ms"
            )
            if number:
                for key, value in done.items():
                    runs[key, served.name].append(value)
    for key, unit in (("seconds", "s"), ("failed", "attempts")):
        ours, theirs = (median(runs[key, served.name]) for served in scene.brokers)
        what = f"{scene.extent.clients:,} clients at once: {key}"
        scene.figures.add(Figure("storm", what, ours, unit, theirs, is_less_better=True))
