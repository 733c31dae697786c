"""How long a producer waits that sends one request at a time."""

from __future__ import annotations

import statistics
from typing import Final

from objectparts.figures import Figure
from objectparts.rig import Client, broker, make_topic, records_for
from objectparts.scene import PARTITIONS, Scene

_WARM_UP: Final = 10


def latency(scene: Scene) -> None:
    """Measure one record, and one request for all partitions, with both cluster logs."""
    count = 50 if scene.is_quick else 400
    with scene.servers() as (store, etcd):
        for name, cluster in (("etcd", etcd.url("latency")), ("store log", "")):
            # The caretaker is on: this is what users see.
            with broker(store.url(f"latency-{len(name)}"), cluster) as served:
                make_topic(served.bootstrap, "t", PARTITIONS)
                client = Client(served)
                # The goals are for etcd; the other figure is for the record.
                bounds = (120.0, 90.0) if cluster else (None, None)
                times = _times(client, [0], count)
                _tell(scene, f"one record, {name}", times, p99=bounds[0])
                times = _times(client, list(range(PARTITIONS)), count)
                _tell(scene, f"request for {PARTITIONS} partitions, {name}", times, p50=bounds[1])
                client.close()


def _times(client: Client, partitions: list[int], count: int) -> list[float]:
    request = records_for("t", partitions, 1000)
    return [client.produce(request) for _ in range(count + _WARM_UP)][_WARM_UP:]


def _tell(
    scene: Scene,
    what: str,
    times: list[float],
    *,
    p50: float | None = None,
    p99: float | None = None,
) -> None:
    hundredths = statistics.quantiles(times, n=100, method="inclusive")
    for name, value, floor in (
        ("p50", statistics.median(times), p50),
        ("p99", hundredths[98], p99),
    ):
        scene.figures.add(
            Figure("latency", f"{what}, {name}", value, "ms", floor=floor, is_less_better=True)
        )
