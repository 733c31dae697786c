"""A topic as an append-only table: rows become records, and a batch is one commit of the log.

The location is the topic's name. Staged objects that are not committed within a week expire.

Options:
    store, cluster, namespace, data: the location of the log.
    key: a column that becomes the record's key (default: none).
    value: a column that becomes its value; by default the whole row, as a JSON object.
    headers: columns that become headers, separated by commas.
    partitions: the number of partitions of a topic that is created (default 1).
    compression: none, gzip, snappy, lz4 or zstd (default).
"""

# Much of the port means nothing to a topic.
# ruff: noqa: ARG002

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rookery.clock import Time
from rookery.cluster.state.sinks import SinkBatch
from rookery.decode import variant
from rookery.direct import blockinglog, commit
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress
from rookery.direct.rowstager import RowStager
from rookery.errors import ConfigError
from rookery.tables import batchorder
from rookery.tables.port import (
    BatchName,
    DataFile,
    Run,
    Table,
    TableSnapshot,
    TableSpec,
    UpkeepPolicy,
    UpkeepResult,
    Upsert,
    here,
)

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def open(spec: TableSpec) -> Table:  # noqa: A001 (a format's interface)
    """Return the topic."""
    return TopicTable(spec)


class TopicTable:
    """A topic to which batches are appended."""

    def __init__(self, spec: TableSpec) -> None:
        self._topic = spec.location
        self._options = dict(spec.options)
        self._place = ClusterAddress.of(self._options)

    def stage(
        self, name: BatchName, batches: Iterable[pa.RecordBatch], schema: pa.Schema, attempt: str
    ) -> list[DataFile]:
        """Upload rows as objects that are not visible to readers yet."""
        log = self._log()
        staging = self._make_stager(log, name)
        try:
            log.run(staging.start())
            for batch in batches:
                # Rows are read in this thread, because the log's thread also serves others and must
                # not block.
                log.run(staging.add(self._records(batch)))
            staged = log.run(staging.finish())
        except BaseException:
            log.run(staging.abort())
            raise
        return [DataFile(str(file.object_id), file.rows, file.size) for file in staged]

    def commit(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        upsert: Upsert | None = None,
        run: Run = here,
    ) -> bool:
        """Assign offsets to the staged rows."""
        if upsert is not None:
            raise ConfigError(f"topic {self._topic!r}: records are only added; leave `mode` out")
        if not batchorder.is_new(self._topic, self.last_commit(name.pipeline), name):
            return False
        log = self._log()
        ids = [int(file.path) for file in files]
        return not log.run(commit.commit(log.log, self._batch(name), ids)).is_repeated

    def replace(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        run: Run = here,
    ) -> bool:
        """Refuse: a log cannot be replaced."""
        raise ConfigError(f"topic {self._topic!r}: records are only added; choose a table instead")

    def last_commit(self, pipeline: str) -> BatchName | None:
        """Return the last batch of a pipeline."""
        log = self._log()
        sink = log.run(commit.last_commit(log.log, self._sink(pipeline)))
        return None if sink is None else BatchName(pipeline, sink.query_id, sink.batch_id)

    def check(self, schema: pa.Schema) -> None:
        """Check that the columns named in options exist."""
        options = self._options
        wanted = [*options.get("headers", "").split(","), options.get("key"), options.get("value")]
        for column in wanted:
            if column and column not in schema.names:
                raise ConfigError(
                    f"topic {self._topic!r}: there is no column {column!r};"
                    f" there are {', '.join(schema.names)}"
                )

    def schema(self) -> pa.Schema | None:
        """Return None: a topic accepts any row."""
        return None

    def rename(self, columns: Mapping[str, str]) -> None:
        """Do nothing: records are immutable."""

    def snapshot(self) -> TableSnapshot | None:
        """Return None: a topic is read as a topic."""
        return None

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield nothing: a topic is read as a topic."""
        return iter(())

    def read_staged(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield nothing: staged objects contain records, not rows."""
        return iter(())

    def upkeep(self, policy: UpkeepPolicy, now: Time) -> UpkeepResult:
        """Do nothing: brokers maintain the log."""
        return UpkeepResult()

    def _log(self) -> BlockingLog:
        return blockinglog.open_shared(self._place)

    def _sink(self, pipeline: str) -> str:
        return f"{pipeline}:{self._topic}"

    def _batch(self, name: BatchName) -> SinkBatch:
        return SinkBatch(self._sink(name.pipeline), name.query, name.batch)

    def _make_stager(self, log: BlockingLog, name: BatchName) -> RowStager:
        packing = PackSettings(self._topic, self._options.get("compression", "zstd"))
        partitions = int(self._options.get("partitions", "1"))
        return RowStager(log.log, self._batch(name), packing, create_partitions=partitions)

    def _records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns: dict[str, pa.Array[Any]] = {}
        if key := self._options.get("key"):
            columns["key"] = _as_bytes(rows.column(key))
        value = self._options.get("value")
        columns["value"] = _as_bytes(rows.column(value)) if value else _as_json(rows)
        if names := self._options.get("headers"):
            columns["headers"] = _as_headers(rows, names.split(","))
        return pa.RecordBatch.from_pydict(columns)


def _as_bytes(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_binary(column.type):
        return column
    if variant.is_variant(column.type):
        return variant.as_text(column).cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())


def _as_json(rows: pa.RecordBatch) -> pa.Array[Any]:
    values = rows.to_pylist()
    for name in (field.name for field in rows.schema if variant.is_variant(field.type)):
        for row in values:
            row[name] = None if row[name] is None else json.loads(row[name])
    lines = [json.dumps(row, default=_plain, ensure_ascii=False) for row in values]
    return pa.array(lines, pa.string()).cast(pa.binary())


def _plain(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _as_headers(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array[Any]:
    columns = [_as_bytes(rows.column(name)).to_pylist() for name in names]
    headers = [
        [{"key": name, "value": value} for name, value in zip(names, row, strict=True)]
        for row in zip(*columns, strict=True)
    ]
    return pa.array(headers, _HEADERS)
