"""A trickle into ten thousand partitions: do requests and memory stay as they are?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import mean
from typing import Final

from objectparts.figures import Figure
from objectparts.rig import Client, broker, children, make_topic, records_for, resident
from objectparts.scene import Scene
from objectparts.slowstore import SlowStore
from rookery.testing.broker import BrokerProcess

_PARTITIONS: Final = 10_000
_REQUEST: Final = 1000
_CYCLE_SECONDS: Final = 5.0
# With the defaults a cycle would be two and a half minutes. Caches are small, so that memory that
# grows is not taken for a cache that fills.
_FAST: Final = (
    "--upkeep-interval-ms", "1000", "--rewrite-merge-age-ms", "2000", "--delete-delay-ms", "2000",
    "--snapshot-entries", "200", "--tail-bytes", "8000000", "--cache-bytes", "8000000",
)  # fmt: skip
# Of three parts of the run, the last is compared with the second: the first is the warm-up.
_FLAT: Final = 1.2


@dataclass(frozen=True)
class Cycle:
    """The figures at the end of a run."""

    requests: float
    """To the store, a minute."""
    puts: float
    broker: float
    """Memory in MiB."""
    caretaker: float


def trickle(scene: Scene) -> None:
    """Send a record to every partition repeatedly while the caretaker merges."""
    with (
        scene.servers() as (store, etcd),
        broker(store.url("trickle"), etcd.url("trickle"), *_FAST) as served,
    ):
        make_topic(served.bootstrap, "t", _PARTITIONS)
        client = Client(served)
        count = 6 if scene.is_quick else 60
        cycles = [_cycle(scene, number, store, served, client) for number in range(count)]
        client.close()
    third = len(cycles) // 3
    middle, last = cycles[third : 2 * third], cycles[2 * third :]
    for name, unit in (
        ("requests", "a minute"), ("puts", "a minute"), ("broker", "MiB"), ("caretaker", "MiB"),
    ):  # fmt: skip
        before, after = (mean(getattr(cycle, name) for cycle in some) for some in (middle, last))
        what = f"trickle into {_PARTITIONS} partitions, {name}: last third / second"
        scene.figures.add(Figure("trickle", what, after, unit, before, _FLAT, is_less_better=True))


def _cycle(
    scene: Scene, number: int, store: SlowStore, served: BrokerProcess, client: Client
) -> Cycle:
    begun, before = time.perf_counter(), store.requests()
    for start in range(0, _PARTITIONS, _REQUEST):
        client.produce(records_for("t", range(start, start + _REQUEST), 100))
    time.sleep(max(0.0, begun + _CYCLE_SECONDS - time.perf_counter()))
    spent = time.perf_counter() - begun
    asked = store.requests() - before
    cared = sum(map(resident, children(served.pid)))
    cycle = Cycle(
        asked.total() * 60 / spent, asked["PUT"] * 60 / spent, resident(served.pid), cared
    )
    scene.figures.say(
        f"trickle: cycle {number + 1}, {spent:.1f} s: {dict(asked)}, broker {cycle.broker:.0f}"
        f" MiB, caretaker {cared:.0f} MiB"
    )
    return cycle
