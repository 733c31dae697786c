"""Small produces of some clients while others log in."""

from __future__ import annotations

from statistics import median

from objectparts.figures import Figure
from scale import cpu

from securityparts.scene import Scene, Served, finish

TOPIC = "logins"
PRODUCES_PER_SECOND = 200
MOST = 2.0


def logins(scene: Scene) -> None:
    """Measure p99 without and with logins, in turns; report both brokers."""
    extent = scene.extent
    ours, theirs = (cpu_of_login(scene, served) for served in scene.brokers)
    scene.figures.add(
        Figure("logins", "CPU of the broker per login", ours, "ms", theirs, is_less_better=True)
    )
    for served in scene.brokers:
        served.make_topic(TOPIC)
        quiet: list[float] = []
        busy: list[float] = []
        done: dict[str, float] = {}
        for _ in range(extent.rounds):
            quiet.append(measure(served, extent.seconds))
            others = served.begin(
                "logins", rate=extent.logins_per_second, seconds=extent.seconds + 2
            )
            busy.append(measure(served, extent.seconds))
            done = finish(others)
        report(scene, served.name, median(busy), median(quiet))
        scene.figures.say(
            f"logins: {served.name}: {done['logins/s']:.0f} logins/s, "
            f"{done['failed']:.0f} failed, p99 of a login {done['p99 ms']:.1f} ms"
        )


def cpu_of_login(scene: Scene, served: Served) -> float:
    """Return the CPU of the broker per login, in milliseconds."""
    # A JVM that was just started would make its own first logins slow.
    for _ in range(2):
        before = cpu(served.pid)
        done = served.run("logins", rate=scene.extent.logins_per_second, seconds=5)
    return (cpu(served.pid) - before) / done["logins"] * 1e3


def measure(served: Served, seconds: float, topic: str = TOPIC) -> float:
    """Return the p99 of small produces, in milliseconds."""
    return served.run("trickle", topic=topic, rate=PRODUCES_PER_SECOND, seconds=seconds)["p99 ms"]


def report(scene: Scene, name: str, busy: float, quiet: float) -> None:
    """Add the row; there is a bound for Rookery only."""
    what = f"{name}: p99 of small produces, {scene.extent.logins_per_second} logins/s against none"
    floor = MOST if name == "rookery" else None
    scene.figures.add(Figure("logins", what, busy, "ms", quiet, floor, is_less_better=True))
