"""The CPU time of rewriting in a broker and its caretaker, compared with Kafka's for producing."""

from __future__ import annotations

from collections import Counter
from time import perf_counter, sleep
from typing import Final

from broker import full_java
from objectparts.clients import ask
from objectparts.figures import Figure
from objectparts.rates import wait_segments
from objectparts.rig import ROUNDS, Numbers, broker, children, cpu, make_topic, wait_for
from objectparts.scene import PARTITIONS, RECORD, Scene
from rookery.store.prices import Prices
from rookery.testing.broker import BrokerProcess
from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings

_BATCH: Final = 1_000_000
_REST_SECONDS: Final = 15
# During producing, segments are built by size. The rest is merged after a minute, as always, and
# becomes segments then: usually it would wait for more.
_SOON: Final = (
    "--upkeep-interval-ms", "2000", "--rewrite-segment-age-ms", "1",
    "--rewrite-segment-min-bytes", "1",
)  # fmt: skip


def upkeep(scene: Scene) -> None:
    """Compare CPU a GB until all is in segments, on the store and on a local journal."""
    theirs = _kafka(scene)
    scene.figures.add(Figure("cpu", "Kafka, produce alone", theirs, "s/GB"))
    with scene.servers() as (store, etcd):
        url = store.url("cpu")
        with broker(url, etcd.url("cpu"), *_SOON) as served:
            before = store.requests()
            _ours(scene, "store + etcd", served, url, theirs)
            _dollars(scene, store.requests() - before)
    with broker("", "", *_SOON) as served:
        _ours(scene, "local journal", served, f"file://{served.folder / 'store'}", theirs)


def _kafka(scene: Scene) -> float:
    settings = KafkaSettings(properties={"num.partitions": str(PARTITIONS)}, heap_mb=1024)
    with KafkaServer(settings, java=full_java()) as server:
        make_topic(server.bootstrap, "t", PARTITIONS)
        before = cpu(server.pid)
        _produce(scene, server.bootstrap)
        return _per_gb(scene, cpu(server.pid) - before)


def _ours(scene: Scene, name: str, served: BrokerProcess, url: str, theirs: float) -> None:
    make_topic(served.bootstrap, "t", PARTITIONS)
    idle = _idle(served)
    begun, before, at_first = perf_counter(), cpu(served.pid), _caretakers(served)
    made = _produce(scene, served.bootstrap)
    produced = cpu(served.pid)
    wait_segments(url, scene.megabytes * 1_000_000)
    all_of_it = cpu(served.pid) - before
    cared = _caretakers(served) - at_first
    # The last records lie for a minute before they are merged: resting is not the gigabyte's.
    spent = all_of_it - idle * (perf_counter() - begun)
    scene.figures.say(
        f"cpu: {name}: {made:.0f} MB/s; {_per_gb(scene, produced - before):.2f} s/GB until the last"
        f" answer, {_per_gb(scene, all_of_it):.2f} until all was in segments, of which the"
        f" caretaker took {_per_gb(scene, cared):.2f}; at rest both take {idle:.2%} of a core"
    )
    what = f"{name}, produce and rewrite / Kafka's produce"
    scene.figures.add(
        Figure("cpu", what, _per_gb(scene, spent), "s/GB", theirs, 1.2, 0.8, is_less_better=True)
    )


def _idle(served: BrokerProcess) -> float:
    """Return the share of a core that broker and caretaker take while there is nothing to do."""
    wait_for("the caretaker works", lambda: Numbers.of(served).get(ROUNDS, 0) > 0)
    begun, before = perf_counter(), cpu(served.pid)
    sleep(_REST_SECONDS)
    return (cpu(served.pid) - before) / (perf_counter() - begun)


def _caretakers(served: BrokerProcess) -> float:
    return sum(map(cpu, children(served.pid)))


def _produce(scene: Scene, bootstrap: str) -> float:
    return ask(
        "produce", bootstrap=bootstrap, topic="t", count=scene.records, size=RECORD,
        partitions=PARTITIONS, batch=_BATCH,
    )["MB/s"]  # fmt: skip


def _per_gb(scene: Scene, seconds: float) -> float:
    return seconds * 1000 / scene.megabytes


def _dollars(scene: Scene, asked: Counter[str]) -> None:
    """Report what the store would charge, as counted; the listings are our own."""
    prices = Prices()
    spent = (asked["PUT"] * prices.put + (asked["GET"] + asked["HEAD"]) * prices.get) / 1000
    scene.figures.say(f"cpu: requests to the store with rewriting: {dict(asked)}")
    what = "dollars a GB, with rewriting, as the store counts"
    scene.figures.add(Figure("cpu", what, spent * 1000 / scene.megabytes, "$/GB"))
