"""How quickly a stream takes in what has piled up, in large batches."""

from __future__ import annotations

from typing import Final

from objectparts.figures import Figure

from sparkparts.scene import Scene
from sparkparts.topics import both

_BATCHES: Final = 6
_WARM: Final = 2
"""The first batches do not count."""
_WAIT_SECONDS: Final = 600


def ingest(scene: Scene) -> None:
    """Measure a stream into a sink that keeps nothing."""
    pair = both(scene, "none")
    step = scene.rows // _BATCHES
    best = max(_rate(scene, pair.log.store, step, number) for number in range(scene.rounds))
    row = Figure("ingest", f"a stream, {step:,} rows a batch", best, "M rows/s", None, 1.5, 2.0)
    scene.figures.add(row)


def _rate(scene: Scene, store: str, step: int, number: int) -> float:
    options = {
        "store": store, "subscribe": "t", "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(step), "minPartitions": "2",
    }  # fmt: skip
    rows = scene.spark.readStream.format("rookery").options(**options).load()
    checkpoint = scene.folder / f"ingest-{number}"
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(_WAIT_SECONDS):
        raise RuntimeError(f"the query does not end: {query.status}")
    counted = [progress for progress in query.recentProgress if progress["numInputRows"]][_WARM:]
    count = sum(int(progress["numInputRows"]) for progress in counted)
    return (
        count / 1e3 / sum(int(progress["durationMs"]["triggerExecution"]) for progress in counted)
    )
