"""Throughput against the store's own: producing against PUT, cold segments against GET."""

from __future__ import annotations

from statistics import mean
from typing import Any, Final

from objectparts.clients import MEBIBYTE, ask
from objectparts.figures import Figure
from objectparts.rig import Numbers, broker, cpu, make_topic, wait_for
from objectparts.scene import PARTITIONS, RECORD, Scene
from rookery.log.settings import CacheSettings
from rookery.net.loop import run_loop
from rookery.store.open import open_store

_OBJECT: Final = 8 * MEBIBYTE
_LANES: Final = 8
_BATCH: Final = 1_000_000
# What a broker reads at once; all its readers together may have eight of these read ahead.
_BLOCK: Final = CacheSettings().stored_block_bytes
# Everything becomes segments at once, and as few as the size of segments allows.
_AT_ONCE: Final = (
    "--upkeep-interval-ms", "500", "--rewrite-segment-age-ms", "1",
    "--rewrite-segment-min-bytes", "1", "--rewrite-merge-age-ms", "1000",
)  # fmt: skip
_BLOCKS: Final = ("hits", "misses", "joined", "ahead", "evicted")


def rates(scene: Scene) -> None:
    """Measure produce, then consume from cold segments, each between two looks at the store."""
    with scene.servers() as (store, etcd):
        raw = Raw(scene, store.url("raw"))
        url, cluster = store.url("rates"), etcd.url("rates")
        _produce(scene, raw, url, cluster)
        with broker(url, cluster, *_AT_ONCE):
            wait_segments(url, 2 * scene.megabytes * 1_000_000)  # of both topics
        scene.figures.say("rates: all is in segments; the broker is started anew")
        _consume(scene, raw, url, cluster)


class Raw:
    """What the store itself does, through the layer that brokers use."""

    def __init__(self, scene: Scene, url: str) -> None:
        self._scene = scene
        self._url = url
        self._sizes: dict[str, Any] = {
            "count": max(_LANES, scene.megabytes * 1_000_000 // _OBJECT),
            "size": _OBJECT, "lanes": _LANES,
        }  # fmt: skip

    def put(self, number: int) -> float:
        """Put objects of 8 MiB, eight at a time; return MB/s."""
        rate = ask("put", url=self._at(number), **self._sizes)["MB/s"]
        self._scene.figures.say(f"rates: raw PUT, 8 MiB x 8: {rate:.0f} MB/s")
        return rate

    def get(self, number: int) -> float:
        """Get what `put` has left, in a broker's blocks, eight at a time; return MB/s."""
        rate = ask("get", url=self._at(number), block=_BLOCK, **self._sizes)["MB/s"]
        self._scene.figures.say(f"rates: raw GET, {_BLOCK // MEBIBYTE} MiB x 8: {rate:.0f} MB/s")
        return rate

    def _at(self, number: int) -> str:
        path, _, options = self._url.partition("?")
        return f"{path}-{number}?{options}"


def _load(scene: Scene) -> dict[str, Any]:
    return {"topic": "t", "count": scene.records, "size": RECORD, "partitions": PARTITIONS}


def _produce(scene: Scene, raw: Raw, url: str, cluster: str) -> None:
    """Produce twice: with librdkafka, and with a client that has its batches ready."""
    ways = (("t", "produce", "produce with librdkafka"), ("b", "send", "produce"))
    for number, (topic, kind, who) in enumerate(ways):
        puts = [raw.put(2 * number)]
        # The caretaker would take CPU and requests: what it costs is measured by itself.
        with broker(url, cluster, "--caretaker", "off") as served:
            make_topic(served.bootstrap, topic, PARTITIONS)
            before = cpu(served.pid)
            load = {**_load(scene), "topic": topic}
            made = ask(kind, bootstrap=served.bootstrap, batch=_BATCH, **load)["MB/s"]
            spent = (cpu(served.pid) - before) * 1000 / scene.megabytes
        puts.append(raw.put(2 * number + 1))
        what = f"{who} / raw PUT of 8 MiB x 8"
        scene.figures.add(Figure("rates", what, made, "MB/s", mean(puts), 0.7))
        scene.figures.add(Figure("rates", f"broker CPU, {kind}, without rewriting", spent, "s/GB"))


def _consume(scene: Scene, raw: Raw, url: str, cluster: str) -> None:
    """Read cold segments twice, each time with a broker that has just begun.

    Once with librdkafka, which makes an object of every record, and once with a reader that looks
    at no record, as the reader of the store does: what is left is the broker's own.
    """
    for kind, who in (("fetch", "fetch"), ("consume", "consume with librdkafka")):
        gets = [raw.get(0)]
        with broker(url, cluster, "--caretaker", "off") as served:
            measured = ask(kind, bootstrap=served.bootstrap, **_load(scene))
            numbers = Numbers.of(served)
            spent = cpu(served.pid) * 1000 / scene.megabytes
        gets.append(raw.get(1))
        blocks = {
            outcome: int(numbers[f"rookery_log_cache_{outcome}_total"]) for outcome in _BLOCKS
        }
        scene.figures.say(
            f"rates: first records after {measured['first ms']:.0f} ms; blocks {blocks}; broker "
            f"CPU with its start {spent:.1f} s/GB"
        )
        what = f"{who} cold segments / raw GET of {_BLOCK // MEBIBYTE} MiB x {_LANES}"
        scene.figures.add(Figure("rates", what, measured["MB/s"], "MB/s", mean(gets), 0.7))


def wait_segments(url: str, size: int) -> None:
    """Return when segments hold that many bytes."""

    async def stored() -> int:
        objects = await open_store(url).list("default/")
        return sum(item.size for item in objects if item.key.endswith(".kfs"))

    wait_for("all data is in segments", lambda: run_loop(stored()) >= size)
