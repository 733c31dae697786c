"""The demo of a pipeline: it copies a topic to tables, is killed, resumes, and rows are counted.

    JSON, some of it broken ──► topic ──► pipeline ──► Iceberg, a topic, dead letters
                                             │
                                          kill -9, then again from where it was

While the pipeline runs, no broker does: it reads the objects.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from rookery.cli.command import print_json
from rookery.cli.demo.childbroker import ChildBroker
from rookery.cli.demo.childprocess import ChildProcess
from rookery.cli.demo.demofolder import DemoFolder, run_in_folder
from rookery.cli.output.tables import open_console
from rookery.client.client import Client
from rookery.client.settings import ProducerSettings
from rookery.errors import Unavailable
from rookery.net.loop import run_loop
from rookery.records.recordcodec import Record

PARTITIONS: Final = 4
_BIRDS: Final = ("jackdaw", "rook", "raven", "magpie", "jay", "chough", "crow", "nutcracker")
_BROKEN_EACH: Final = 50
_BATCHES: Final = 5
_KILL_AFTER: Final = 2
_PATIENCE_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.1
_WORDS: Final = 100
"""The number of lines that an error shows."""
_DECLARATION: Final = "sightings.toml"
_DECLARED: Final = """
name = "sightings"
[source]
data = "{data}"
topics = ["sightings"]
max-offsets-per-trigger = {batch}
[topics.sightings]
schema = "id long, bird string, weight double"
[silver.checks]
weighed = "weight > 0"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "lake/bronze"
[[sinks]]
layer = "silver"
format = "iceberg"
location = "lake/sightings"
name = "sightings"
[[sinks]]
layer = "silver"
format = "topic"
location = "clean"
options = {{ data = "{data}", partitions = "{partitions}" }}
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "lake/dead"
"""


@dataclass(frozen=True)
class Counts:
    """The number of records produced, and how many of them each reader found."""

    produced: int
    broken: int
    iceberg: int
    """Rows of the Iceberg table, as DuckDB counts them."""
    iceberg_distinct: int
    """The same by partition and offset: as many if none occurs twice."""
    topic: int
    """Records of the topic, as Spark SQL counts them."""
    topic_distinct: int
    dead_letters: int

    @property
    def is_sound(self) -> bool:
        """Whether everything is there, once."""
        good = self.produced - self.broken
        counts = {self.iceberg, self.iceberg_distinct, self.topic, self.topic_distinct}
        return counts == {good} and self.dead_letters == self.broken


def run_tables_demo(records: int, durability: str, report_file: str, *, as_json: bool) -> int:
    """Run the demo; return 0 if all counts agree."""
    console = open_console(is_quiet=as_json)
    report = Path(report_file).absolute()

    def run(folder: DemoFolder) -> Counts:
        counts = _write_and_count(folder, records, durability, console)
        report.parent.mkdir(parents=True, exist_ok=True)
        declared = folder.path / _DECLARATION
        _call(folder, "pipeline", "report", str(declared), "--html", str(report), "--json")
        return counts

    counts = run_in_folder(run, prefix="rookery-tables-")
    if as_json:
        print_json({**asdict(counts), "is_sound": counts.is_sound, "report": str(report)})
    else:
        _show(counts, report, console)
    return 0 if counts.is_sound else 1


def _write_and_count(folder: DemoFolder, records: int, durability: str, console: Console) -> Counts:
    """Run a pipeline twice, the first time until it is killed; return what came of it."""
    broker = folder.add(ChildBroker(folder.path, durability))
    broken = run_loop(_fill(broker, records, console))
    declared = folder.path / _DECLARATION
    declared.write_text(
        _DECLARED.format(
            data=folder.path / "data", batch=records // _BATCHES + 1, partitions=PARTITIONS
        )
    )
    _run_and_kill(folder, console)
    console.print("… run again, it resumes where it was", highlight=False)
    _call(folder, "pipeline", "run", str(declared), "--available-now", "--json")
    return _count(folder.path, records, broken)


async def _fill(broker: ChildBroker, records: int, console: Console) -> int:
    """Produce sightings, then stop the broker; return how many of them are broken."""
    broken = 0
    try:
        await broker.start()
        async with Client(broker.bootstrap) as client:
            await client.create_topic("sightings", partitions=PARTITIONS)
            producer = client.producer(ProducerSettings(batch_bytes=1 << 18))
            for number in range(records):
                is_broken = number % _BROKEN_EACH == _BROKEN_EACH - 1
                broken += is_broken
                value = _sighting(number, is_broken=is_broken)
                await producer.send("sightings", Record(None, value))
            await producer.flush()
    finally:
        broker.stop()
    console.print(
        f"{records:,} sightings are in a topic, {broken:,} of them broken; the broker is stopped",
        highlight=False,
    )
    return broken


def _sighting(number: int, *, is_broken: bool) -> bytes:
    bird = _BIRDS[number % len(_BIRDS)]
    text = json.dumps({"id": number, "bird": bird, "weight": number % 900 / 10 + 1}).encode()
    return text[:-9] if is_broken else text


def _run_and_kill(folder: DemoFolder, console: Console) -> None:
    """Run the pipeline, and kill all its processes after some batches."""
    figures = folder.path / ".rookery/sightings/metrics.jsonl"
    pipeline = folder.add(ChildProcess(folder.path / "run.log"))
    pipeline.launch(_command("pipeline", "run", str(folder.path / _DECLARATION), "--available-now"))
    looks = 0
    while _lines(figures) < _KILL_AFTER:
        looks += 1
        if pipeline.status is not None or looks * _LOOK_SECONDS > _PATIENCE_SECONDS:
            said = pipeline.words(_WORDS)
            raise Unavailable(f"the pipeline did not get to batch {_KILL_AFTER}:\n{said}")
        run_loop(asyncio.sleep(_LOOK_SECONDS))
    console.print(
        f"[bold red]kill -9[/bold red] of the pipeline after {_lines(figures)} batches …",
        highlight=False,
    )
    pipeline.kill()


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _call(folder: DemoFolder, *arguments: str) -> None:
    command = folder.add(ChildProcess(folder.path / "command.log"))
    command.launch(_command(*arguments))
    if command.wait():
        raise Unavailable(f"rookery {' '.join(arguments)} failed:\n{command.words(_WORDS)}")


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rookery.cli.main", *arguments]


def _count(folder: Path, records: int, broken: int) -> Counts:
    import duckdb
    import pyarrow as pa

    from rookery.spark.sparksession import session
    from rookery.tables.open import open_table
    from rookery.tables.port import TableSpec

    good = open_table(TableSpec("iceberg", str(folder / "lake/sightings"), "sightings"))
    dead = open_table(TableSpec("parquet", str(folder / "lake/dead")))
    with duckdb.connect() as database:
        database.register("sightings", pa.Table.from_batches(good.read()))
        query = (
            "SELECT count(*), count(DISTINCT (rookery_partition, rookery_offset)) FROM sightings"
        )
        [(iceberg, iceberg_distinct)] = database.sql(query).fetchall()
    with _silence():
        spark = session("rookery-demo", "local[2]")
        spark.sql(
            "CREATE TEMPORARY VIEW clean USING rookery "
            f"OPTIONS (data '{folder / 'data'}', subscribe 'clean')"
        )
        [(topic, topic_distinct)] = spark.sql(
            "SELECT count(*), count(DISTINCT get_json_object(string(value), '$.id')) FROM clean"
        ).collect()
        spark.stop()
    letters = sum(batch.num_rows for batch in dead.read())
    return Counts(records, broken, iceberg, iceberg_distinct, topic, topic_distinct, letters)


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what Java and Spark print at their start; errors are still raised."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _show(counts: Counts, report: Path, console: Console) -> None:
    table = Table(title="what each reader counted")
    for title in ("where", "with", "rows", "distinct", "expected"):
        table.add_column(title, justify="left" if title in {"where", "with"} else "right")
    good = f"{counts.produced - counts.broken:,}"
    table.add_row(
        "Iceberg table", "DuckDB", f"{counts.iceberg:,}", f"{counts.iceberg_distinct:,}", good
    )
    table.add_row(
        "topic clean", "Spark SQL", f"{counts.topic:,}", f"{counts.topic_distinct:,}", good
    )
    table.add_row("dead letters", "Parquet", f"{counts.dead_letters:,}", "", f"{counts.broken:,}")
    console.print(table)
    if counts.is_sound:
        console.print("[green]Nothing is missing, nothing occurs twice.[/green]")
    else:
        console.print("[bold red]The counts differ.[/bold red]")
    console.print(f"The pipeline's report: {report}", highlight=False, soft_wrap=True)
