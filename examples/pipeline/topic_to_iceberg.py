"""A topic to an Iceberg table, and the table to DuckDB.

    python examples/pipeline/topic_to_iceberg.py STORE FOLDER

The pipeline is declared in `sightings.toml`; here it is pointed to a store and a folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from rookery.pipeline import BatchPace, load, run_pipeline
from rookery.spark import session


def run(spark: SparkSession, store: str, folder: Path) -> list[tuple[str, int]]:
    """Run the pipeline on all there is; return how often each bird was seen, as DuckDB counts."""
    folder.mkdir(parents=True, exist_ok=True)
    declared = folder / "sightings.toml"
    declared.write_text(
        Path(__file__).with_name("sightings.toml").read_text().replace("STORE", store)
    )
    run_pipeline(spark, load(declared), BatchPace(is_available_now=True))

    catalog = load_catalog("rookery", type="sql", uri=f"sqlite:///{folder / 'lake/catalog.db'}")
    sightings = catalog.load_table("default.sightings").scan().to_arrow()
    with duckdb.connect() as database:
        database.register("sightings", sightings)
        return database.sql(
            "SELECT bird, count(*) FROM sightings GROUP BY bird ORDER BY bird"
        ).fetchall()


if __name__ == "__main__":
    for line in run(session(), sys.argv[1], Path(sys.argv[2])):
        print(*line)
