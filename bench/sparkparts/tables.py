"""A topic into tables: as Spark itself writes Parquet, and by a pipeline."""

from __future__ import annotations

from functools import partial
from typing import Final

from objectparts.figures import Figure

from rookery.pipeline.declaration.spec import Pipeline, Sink, Source
from rookery.pipeline.run import BatchPace, run_pipeline
from sparkparts.scene import SLOTS, Scene, timed
from sparkparts.topics import Log, both

_ROW_BYTES: Final = 108
"""Key and value of a row."""
_FORMATS: Final = ("parquet", "iceberg")


def tables(scene: Scene) -> None:
    """Compare a copy into Parquet with one of Parquet; then measure pipelines."""
    pair = both(scene, "none")
    parquet = scene.spark.read.parquet(pair.parquet)
    target = str(scene.folder / "copied")

    def copy(number: int, *, is_ours: bool) -> float:
        rows = pair.log.read(scene.spark) if is_ours else parquet
        writer = rows.write.mode("overwrite").option("compression", "zstd")
        return timed(lambda: writer.parquet(f"{target}-{is_ours}-{number % 2}"))

    ours, theirs = scene.best(
        lambda number: copy(number, is_ours=True), lambda number: copy(number, is_ours=False)
    )
    what = "topic to parquet / parquet to parquet, zstd"
    scene.add_rate("tables", what, (ours, theirs), (0.6, 0.8))
    for kind in _FORMATS:
        [taken] = scene.best(partial(_bronze, scene, pair.log, kind))
        value = scene.rows * _ROW_BYTES / 1e6 / taken / SLOTS
        what = f"a pipeline, raw records into {kind}, start and end included"
        scene.figures.add(Figure("tables", what, value, "MB/s a core", None, 25, 50))


def _bronze(scene: Scene, log: Log, kind: str, number: int) -> float:
    folder = scene.folder / f"lake-{kind}-{number}"
    source = Source(topics=("t",), store=log.store, max_offsets_per_trigger=scene.rows)
    table = Sink(layer="bronze", format=kind, location=str(folder / "bronze"))
    pipeline = Pipeline(name="bench", source=source, sinks=(table,), state=str(folder / "state"))
    count: list[int] = []
    taken = timed(
        lambda: run_pipeline(
            scene.spark,
            pipeline,
            BatchPace(is_available_now=True),
            lambda metrics: count.append(metrics.rows["bronze"]),
        )
    )
    if sum(count) != scene.rows:
        raise RuntimeError(f"{kind}: {sum(count)} of {scene.rows} rows came")
    scene.drop(f"lake-{kind}-{number}")
    return taken
