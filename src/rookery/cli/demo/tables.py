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
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from rookery.cli.command import print_json
from rookery.cli.demo.childbroker import ChildBroker
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
    with tempfile.TemporaryDirectory(prefix="rookery-tables-") as name:
        folder = Path(name)
        broken = run_loop(_fill(folder, records, durability, console))
        declared = folder / "sightings.toml"
        declared.write_text(
            _DECLARED.format(
                data=folder / "data", batch=records // _BATCHES + 1, partitions=PARTITIONS
            )
        )
        _run_and_kill(declared, console)
        console.print("… run again, it resumes where it was", highlight=False)
        _run(declared)
        counts = _count(folder, records, broken)
        report.parent.mkdir(parents=True, exist_ok=True)
        _call("pipeline", "report", str(declared), "--html", str(report), "--json")
    if as_json:
        print_json({**asdict(counts), "is_sound": counts.is_sound, "report": str(report)})
    else:
        _show(counts, report, console)
    return 0 if counts.is_sound else 1


async def _fill(folder: Path, records: int, durability: str, console: Console) -> int:
    """Produce sightings, then stop the broker; return how many of them are broken."""
    broker = ChildBroker(folder, durability)
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


def _run_and_kill(declared: Path, console: Console) -> None:
    """Run the pipeline, and kill all its processes after some batches."""
    figures = declared.parent / ".rookery/sightings/metrics.jsonl"
    with (declared.parent / "run.log").open("wb") as words:
        process = subprocess.Popen(  # noqa: S603 (our own program)
            _command("pipeline", "run", str(declared), "--available-now"),
            stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True,
        )  # fmt: skip
    try:
        looks = 0
        while _lines(figures) < _KILL_AFTER:
            looks += 1
            if process.poll() is not None or looks * _LOOK_SECONDS > _PATIENCE_SECONDS:
                said = (declared.parent / "run.log").read_text("utf-8", "replace")
                raise Unavailable(f"the pipeline did not get to batch {_KILL_AFTER}:\n{said}")
            run_loop(asyncio.sleep(_LOOK_SECONDS))
        console.print(
            f"[bold red]kill -9[/bold red] of the pipeline after {_lines(figures)} batches …",
            highlight=False,
        )
    finally:
        with suppress(ProcessLookupError):  # it may have ended by itself, and has reported why
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _run(declared: Path) -> None:
    _call("pipeline", "run", str(declared), "--available-now", "--json")


def _call(*arguments: str) -> None:
    done = subprocess.run(  # noqa: S603 (our own program)
        _command(*arguments), check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise Unavailable(f"rookery {' '.join(arguments)} failed:\n{done.stderr[-4000:]}")


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
    with _hushed():
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
def _hushed() -> Iterator[None]:
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
