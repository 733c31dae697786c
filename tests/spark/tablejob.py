"""A driver that brings a topic into an Iceberg table: `tablejob STORE FOLDER MASTER`.

It ends when it has read all that was there at its start. The folder is for the table, its catalog
and the pipeline's state, and for orders to kill a process right after the table's commit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rookery.pipeline.declaration.spec import Pipeline, Sink, Source
from rookery.pipeline.run import BatchPace, run_pipeline
from rookery.spark import session
from tests.spark.copyjob import SETTINGS
from tests.spark.strike import strike

TABLE = "table"
_BATCH = 1_500


def main(store: str, folder: str, master: str) -> None:
    """Read on from where the last run was."""
    source = Source(topics=("t",), store=store, max_offsets_per_trigger=_BATCH, min_partitions=2)
    table = Sink(layer="bronze", format="iceberg", location=str(Path(folder, TABLE)))
    pipeline = Pipeline(name="table", source=source, sinks=(table,), state=f"{folder}/state")

    def hook(step: str) -> None:
        # The table has the batch, and nothing else has been done after it.
        if step == "done":
            strike(Path(folder), step)

    spark = session("table", master, settings=SETTINGS)
    run_pipeline(spark, pipeline, BatchPace(is_available_now=True), hook=hook)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
