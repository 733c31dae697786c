"""How many PUTs a broker needs, and what they cost."""

from __future__ import annotations

from typing import Final

from objectparts.clients import ask
from objectparts.figures import Figure
from objectparts.rig import (
    CREATES,
    FLUSHES,
    PRODUCES,
    Client,
    Numbers,
    broker,
    make_topic,
    records_for,
)
from objectparts.scene import PARTITIONS, RECORD, Scene
from rookery.testing.broker import BrokerProcess

_BATCH: Final = 16_384
_COST: Final = "rookery_store_cost_dollars_per_gb"


def puts(scene: Scene) -> None:
    """Count the PUTs of flushes over more and more partitions, and those of a gigabyte."""
    with scene.servers() as (store, etcd):
        with broker(store.url("flushes"), etcd.url("flushes"), "--caretaker", "off") as served:
            for partitions in (1, 8, 100, 1000):
                topic = f"t{partitions}"
                make_topic(served.bootstrap, topic, partitions)
                client, before = Client(served), Numbers.of(served)
                request = records_for(topic, range(partitions), 100)
                for _ in range(20):
                    client.produce(request)
                client.close()
                after = Numbers.of(served)
                flushes = after.since(before, FLUSHES)
                each = after.since(before, CREATES) / flushes
                what = f"PUTs a flush, {partitions} partitions, {flushes:.0f} flushes"
                scene.figures.add(Figure("puts", what, each, "", floor=1.0, is_less_better=True))
        with broker(store.url("batches"), etcd.url("batches"), "--caretaker", "off") as served:
            _small_batches(scene, served)


def _small_batches(scene: Scene, served: BrokerProcess) -> None:
    """Compare with a PUT for each partition of each request, as some brokers do."""
    make_topic(served.bootstrap, "t", PARTITIONS)
    before = Numbers.of(served)
    made = ask(
        "produce", bootstrap=served.bootstrap, topic="t", count=scene.records, size=RECORD,
        partitions=PARTITIONS, batch=_BATCH,
    )  # fmt: skip
    after = Numbers.of(served)
    gigabytes = scene.megabytes / 1000
    each = after.since(before, CREATES) / gigabytes
    # A request has a partition at least, so this is the least that the others need.
    requests = after.since(before, PRODUCES) / gigabytes
    what = f"PUTs a GB at 16 KiB batches, {made['MB/s']:.0f} MB/s / requests a GB"
    scene.figures.add(Figure("puts", what, each, "PUTs/GB", requests, 0.02, is_less_better=True))
    scene.figures.add(Figure("puts", "dollars a GB written, /metrics", after[_COST], "$/GB"))
