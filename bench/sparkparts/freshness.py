"""How old records are when a pipeline has brought them into an Iceberg table, a batch a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import monotonic, sleep, time
from typing import Any, Final, Self

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from objectparts.figures import Figure

from rookery.broker.settings import BrokerSettings
from rookery.pipeline.declaration.columns import RAW
from rookery.pipeline.declaration.spec import Pipeline, Sink, Source, Upkeep
from rookery.pipeline.metrics import BatchMetrics
from rookery.pipeline.run import BatchPace, open_engine, run_pipeline
from rookery.pipeline.upkeep import UpkeepThread
from rookery.testing.servedbroker import ServedBroker
from sparkparts.scene import Scene

_PARTITIONS: Final = 2
_RATE: Final = 1000
"""Records a second."""
_WARM: Final = 3
"""The first batches do not count."""
_WAIT_SECONDS: Final = 120
_VALUE: Final = b"x" * 100


def freshness(scene: Scene) -> None:
    """Measure with a table that is new, and with one that has had many commits."""
    folder = scene.folder / "freshness"
    settings = BrokerSettings(store=f"file://{folder / 'store'}", durability="os")
    with ServedBroker(folder / "broker", settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic("t", _PARTITIONS, 1)]).values():
            made.result(_WAIT_SECONDS)
        pipeline = _pipeline(folder, settings.store)
        _measure(scene, broker.bootstrap, pipeline, "a new table")
        begun = monotonic()
        _commit_many(pipeline, scene.commits)
        each = (monotonic() - begun) / scene.commits
        scene.figures.say(f"  {scene.commits:,} commits of one row each took {each * 1e3:.0f} ms")
        _measure(scene, broker.bootstrap, pipeline, f"after {scene.commits:,} commits")


def _pipeline(folder: Path, store: str) -> Pipeline:
    source = Source(topics=("t",), store=store)
    table = Sink(layer="bronze", format="iceberg", location=str(folder / "table"))
    # Many commits are made twenty times as fast as a pipeline would make them; so that there are
    # as many versions as with a batch a second and the default, they stay a twentieth as long.
    upkeep = Upkeep(keep_every="30 seconds")
    state = str(folder / "state")
    return Pipeline(name="fresh", source=source, sinks=(table,), state=state, upkeep=upkeep)


def _measure(scene: Scene, bootstrap: str, pipeline: Pipeline, what: str) -> None:
    seconds = 20 if scene.is_quick else 40
    told: list[BatchMetrics] = []
    pace = BatchPace()
    run = threading.Thread(
        target=run_pipeline, args=(scene.spark, pipeline, pace, told.append), daemon=True
    )
    run.start()
    _produce(bootstrap, seconds, lambda: bool(told))
    pace.end.set()
    run.join(_WAIT_SECONDS)
    if run.is_alive():
        raise RuntimeError("the pipeline does not end")
    batches = [batch for batch in told[_WARM:] if batch.freshness_p50_ms is not None]
    if not batches:
        raise RuntimeError(f"there were only {len(told)} batches")
    text = f"p50 of records at {_RATE:,}/s, a batch a second, {what}"
    p50, p99 = (
        median(values) / 1e3
        for values in zip(
            *((batch.freshness_p50_ms or 0, batch.freshness_p99_ms or 0) for batch in batches),
            strict=True,
        )
    )
    scene.figures.say(f"  {len(batches)} batches, p99 {p99:.2f} s")
    row = Figure("freshness", text, p50, "s", None, 3.0, 1.5, is_less_better=True)
    scene.figures.add(row)


def _produce(bootstrap: str, seconds: float, is_running: Callable[[], bool]) -> None:
    """Send records evenly, for a time after the pipeline runs."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    begun, sent, until = monotonic(), 0, monotonic() + _WAIT_SECONDS
    has_begun = False
    while monotonic() < until:
        if not has_begun and is_running():
            has_begun, until = True, monotonic() + seconds
        while sent < (monotonic() - begun) * _RATE:
            producer.produce("t", _VALUE, partition=sent % _PARTITIONS)
            sent += 1
        producer.poll(0)
        sleep(0.005)
    producer.flush(_WAIT_SECONDS)


def _commit_many(pipeline: Pipeline, count: int) -> None:
    """Make batches as the pipeline does, with its upkeep, but without Spark.

    What they hold is not in the topic: they leave the offsets as they are.
    """
    engine, upkeep = open_engine(pipeline), UpkeepThread(pipeline)
    for _ in range(count):
        metrics = engine.run(_LocalRows([_row()]), engine.read_position())  # type: ignore[arg-type] # what is asked of it, it has
        if metrics is not None:
            upkeep.after(metrics.batch)
    upkeep.close()
    engine.finish()


def _row() -> pa.RecordBatch:
    row = {
        "value": _VALUE, "topic": "t", "partition": 0, "offset": 0,
        "timestamp": datetime.fromtimestamp(time(), UTC), "timestampType": 0,
    }  # fmt: skip
    return pa.RecordBatch.from_pylist([row], RAW)


class _LocalRows:
    """Some rows that stand where a DataFrame does."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def mapInArrow(  # noqa: N802 (Spark's name)
        self, work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str
    ) -> Self:
        return type(self)([part for batch in self._batches for part in work(iter([batch]))])

    def collect(self) -> list[Any]:
        return [row for batch in self._batches for row in batch.to_pylist()]
