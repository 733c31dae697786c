"""Throughput and CPU: the same client through every route in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker import child, java_consume, java_produce
from proxyparts.figures import CONSUME, CPU, PRODUCE, Bar, Figure
from proxyparts.rig import DIRECT, OURS, PEER, Rig, Route
from proxyparts.scene import Scene

# librdkafka rests this long when its queue is full; its default of a second would hide the routes.
_REST_MS: Final = "2"
_CPU_PER_GB: Final = "CPU s/GB"

Client = Callable[[Rig, Route, "Scenario", int], dict[str, float]]


@dataclass(frozen=True)
class Scenario:
    """One client with one size of records."""

    name: str
    run: Client
    count: int
    size: int
    bar: Bar | None
    figure: str = "MB/s"
    partitions: int = 4

    @property
    def is_reader(self) -> bool:
        """Whether it reads records that are there before."""
        return self.bar is CONSUME

    @property
    def topic(self) -> str:
        """The topic that it writes or reads."""
        return f"{'read' if self.is_reader else 'write'}-{self.size}-{self.partitions}"


def _rd_produce(_rig: Rig, route: Route, scenario: Scenario, count: int) -> dict[str, float]:
    return child("produce", route.bootstrap, scenario.topic, str(count), str(scenario.size))


def _rd_small(_rig: Rig, route: Route, scenario: Scenario, count: int) -> dict[str, float]:
    shape = (str(scenario.size), str(scenario.partitions), "0")
    return child("produce", route.bootstrap, scenario.topic, str(count), *shape)


def _rd_consume(_rig: Rig, route: Route, scenario: Scenario, count: int) -> dict[str, float]:
    shape = (str(scenario.size), _REST_MS)
    return child("consume", route.bootstrap, scenario.topic, str(count), *shape)


def _java_produce(rig: Rig, route: Route, scenario: Scenario, count: int) -> dict[str, float]:
    return java_produce(rig.java, route.bootstrap, scenario.topic, count, scenario.size)


def _java_consume(rig: Rig, route: Route, scenario: Scenario, count: int) -> dict[str, float]:
    return java_consume(rig.java, route.bootstrap, scenario.topic, count)


SCENARIOS: Final = (
    Scenario("Java produce 1 KB", _java_produce, 300_000, 1000, PRODUCE),
    Scenario("Java produce 100 B", _java_produce, 1_500_000, 100, PRODUCE),
    Scenario("librdkafka produce 1 KB", _rd_produce, 500_000, 1000, PRODUCE),
    Scenario("librdkafka produce 100 B", _rd_produce, 1_000_000, 100, PRODUCE),
    Scenario("small requests: 100 partitions, linger 0, 100 B", _rd_small, 200_000, 100, None,
             figure="records/s", partitions=100),
    Scenario("Java consume 1 KB", _java_consume, 1_000_000, 1000, CONSUME),
    Scenario("librdkafka consume 1 KB", _rd_consume, 1_000_000, 1000, CONSUME),
    Scenario("Java consume 100 B", _java_consume, 2_000_000, 100, CONSUME),
    Scenario("librdkafka consume 100 B", _rd_consume, 2_000_000, 100, CONSUME),
)  # fmt: skip


def throughput(scene: Scene) -> None:
    """Measure every scenario on every route."""
    wanted = [each for each in SCENARIOS if scene.wants(each.name)]
    with scene.rig.routes() as routes:
        for topic in {each.topic for each in wanted if each.is_reader}:
            _fill(scene, next(each for each in wanted if each.topic == topic))
        warm: set[bool] = set()
        for scenario in wanted:
            if not scenario.is_reader:
                scene.rig.make_topic(scenario.topic, scenario.partitions)
            is_warm = scenario.is_reader in warm
            warm.add(scenario.is_reader)
            _report(scene, scenario, _measure(scene, scenario, routes, is_warm=is_warm))
            if not scenario.is_reader:
                scene.rig.delete_topic(scenario.topic)


def _fill(scene: Scene, scenario: Scenario) -> None:
    """Write the records that readers read."""
    scene.figures.say(f"fill {scenario.topic}")
    scene.rig.make_topic(scenario.topic, scenario.partitions)
    count = str(scene.scale(scenario.count))
    child("produce", scene.rig.kafka, scenario.topic, count, str(scenario.size))


def _measure(
    scene: Scene, scenario: Scenario, routes: list[Route], *, is_warm: bool
) -> dict[str, list[dict[str, float]]]:
    """Return the figures of each route, round by round, without those that warm up."""
    runs: dict[str, list[dict[str, float]]] = {route.name: [] for route in routes}
    for number, route in scene.turns(routes, is_warm=is_warm):
        values = _run(scene, scenario, route)
        scene.tell(number, route, scenario.name, values)
        if number >= 0:
            runs[route.name].append(values)
    return runs


def _run(scene: Scene, scenario: Scenario, route: Route) -> dict[str, float]:
    count = scene.scale(scenario.count)
    before = route.cpu()
    values = scenario.run(scene.rig, route, scenario, count)
    if route.pid is not None:
        values[_CPU_PER_GB] = (route.cpu() - before) / (count * scenario.size / 1e9)
    return values


def _report(scene: Scene, scenario: Scenario, runs: dict[str, list[dict[str, float]]]) -> None:
    direct, ours, peer = (
        [run[scenario.figure] for run in runs[name]] for name in (DIRECT, OURS, PEER)
    )
    scene.figures.add(
        Figure(
            scenario.name,
            scenario.figure,
            *(statistics.median(each) for each in (direct, ours, peer)),
            ours_to_direct=_share(ours, direct),
            peer_to_direct=_share(peer, direct),
            bar=scenario.bar,
        )
    )
    costs = [statistics.median(run[_CPU_PER_GB] for run in runs[name]) for name in (OURS, PEER)]
    bar = CPU if scenario.bar else None
    scene.figures.add(Figure(f"{scenario.name}: CPU", "s/GB", None, *costs, bar=bar))


def _share(some: list[float], direct: list[float]) -> float:
    """Return the median of the shares in each round: rounds differ in how busy the machine is."""
    return statistics.median(rate / base for rate, base in zip(some, direct, strict=True))
