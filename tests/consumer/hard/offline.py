"""The expected stream: a plain dump of the log, sorted by a database.

confluent-kafka reads, DuckDB computes the running maximum of the times and sorts. Nothing of
`rookery.consumer` is used here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from rookery.testing.wait import wait_until

_ORDERED: Final = """
    WITH clocked AS (
        SELECT *, coalesce(max(timestamp) OVER (
            PARTITION BY place, partition ORDER BY "offset"
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), timestamp) AS clock
        FROM dumped)
    SELECT key, value, topic, partition, "offset", timestamp
    FROM clocked
    ORDER BY greatest(clock - $lateness, timestamp), place, partition, "offset"
"""
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


def dump(bootstrap: str, topics: Sequence[str], isolation: str = "read_committed") -> pa.Table:
    """Read all records of topics up to their ends, in whatever order they come."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "dump",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": isolation,
            "fetch.queue.backoff.ms": "10",
            "queued.min.messages": "1000000",
        }
    )
    try:
        places = _places(consumer, topics)
        consumer.assign(places)
        columns: dict[str, list[Any]] = {name: [] for name in (*COLUMNS, "place")}
        numbers = {topic: number for number, topic in enumerate(topics)}
        ended = 0

        def take() -> int:
            nonlocal ended
            ended += _take(consumer.consume(10_000, 0.2), numbers, columns)
            return ended

        wait_until(take, "the ends of all partitions", accepts=len(places).__eq__)
    finally:
        consumer.close()
    return pa.table(columns, _DUMPED)


def ordered(dumped: pa.Table, lateness_ms: int = 0) -> pa.Table:
    """Sort a dump by (max(clock - lateness, time), topic, partition, offset)."""
    with duckdb.connect() as database:
        database.register("dumped", dumped)
        result: pa.Table = database.sql(_ORDERED, params={"lateness": lateness_ms}).to_arrow_table()
    return result.combine_chunks()


def inversions(table: pa.Table) -> int:
    """Count rows that come after a row of a later time."""
    with duckdb.connect() as database:
        plain = table.select(["timestamp"]).append_column("n", pa.array(range(table.num_rows)))
        database.register("plain", plain)
        [row] = database.execute(
            "SELECT count(*) FILTER (timestamp < before) FROM (SELECT timestamp, max(timestamp) "
            "OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before "
            "FROM plain)"
        ).fetchall()
    return int(row[0])


def plain(batches: Iterable[Any]) -> pa.Table:
    """Bring what a stream returned into the form of a dump."""
    # A stream hands out batches of its own kind, which hold those of Arrow.
    data = [getattr(batch, "data", batch) for batch in batches]
    if not data:
        return _PLAIN.empty_table()
    table = pa.Table.from_batches(data).select(list(COLUMNS))
    times = table.column("timestamp").cast(pa.int64())
    return table.set_column(5, "timestamp", times).cast(_PLAIN).combine_chunks()


def values(table: pa.Table, name: str) -> list[Any]:
    """Return a column as Python's own values; times that are numbers stay so."""
    return list(table.column(name).to_pylist())


def of_partition(table: pa.Table, partition: int) -> pa.Table:
    """Return the rows of one partition."""
    return table.filter(pa.array([value == partition for value in values(table, "partition")]))


def digest(table: pa.Table) -> str:
    """Hash the bytes of all rows, however they are cut into batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
}
_PLAIN: Final = pa.schema(_TYPES)
_DUMPED: Final = _PLAIN.append(pa.field("place", pa.int32()))


def _places(consumer: Consumer, topics: Sequence[str]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition, OFFSET_BEGINNING)
        for topic in topics
        for partition in consumer.list_topics(topic, 60).topics[topic].partitions
    ]


def _take(messages: list[Any], numbers: dict[str, int], columns: dict[str, list[Any]]) -> int:
    """Keep the records; return how many partitions have come to their end."""
    ends = 0
    for message in messages:
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ends += 1
            continue
        row = (
            message.key(), message.value(), message.topic(), message.partition(),
            message.offset(), message.timestamp()[1], numbers[message.topic()],
        )  # fmt: skip
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
    return ends
