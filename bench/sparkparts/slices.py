"""A short stretch of time of a topic: how much of it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.admin import NewTopic
from objectparts.figures import Figure

from rookery.testing.seaweed import SeaweedServer
from sparkparts.relay import Relay
from sparkparts.scene import Scene, drain
from sparkparts.topics import HOUR_MS, PARTITIONS, START_MS, Log, into_segments, make_log, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A batch is read whole or not at all, and producers seldom send larger ones.
_BATCH: Final = 64 * 1024
_PART: Final = 100


def slices(scene: Scene) -> None:
    """Compare the bytes that a hundredth of the time takes with those of a full scan."""
    folder = scene.folder / "slices"
    with SeaweedServer() as server, Relay(server.port) as relay:
        url = server.url("ready/slices")
        make_log(folder, NewTopic("t", PARTITIONS, 1), store=url)
        straight = Log(url, scene.named("straight", url))
        straight.write(rows(scene), batchBytes=_BATCH)
        into_segments(scene, straight)
        url = server.url("ready/slices", relay.endpoint)
        log = Log(url, scene.named("relayed", url))
        begin = START_MS + HOUR_MS // 2
        times: dict[str, Any] = {
            "startingTimestamp": begin,
            "endingTimestamp": begin + HOUR_MS // _PART,
        }
        # First, so that it pays for all that a process keeps for later.
        part = _taken(relay, log.read(scene.spark, **times))
        full = _taken(relay, log.read(scene.spark))
        count = log.read(scene.spark, **times).count()
    scene.figures.say(f"  {count:,} of {scene.rows:,} rows are in the slice")
    what = f"1 % of the time / full scan, batches of {_BATCH // 1024} KiB"
    row = Figure("slices", what, part / 1e6, "MB read", full / 1e6, 0.05, 0.02, is_less_better=True)
    scene.figures.add(row)
    scene.drop("slices")


def _taken(relay: Relay, frame: DataFrame) -> int:
    """Return how many bytes the store gives for a scan, plan included."""
    before = relay.taken
    drain(frame)
    return relay.taken - before
