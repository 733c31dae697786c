"""Splits raw rows of one topic into good rows, dead letters and late rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rookery.decode.open import open_decoder
from rookery.decode.port import Decoder
from rookery.pipeline.batch.checks import Checks
from rookery.pipeline.declaration.columns import COORDINATES, DEAD, WATERMARK, envelope
from rookery.pipeline.declaration.names import DELETED, KEY, PREFIX
from rookery.pipeline.declaration.spec import Pipeline
from rookery.tables.schemas import fit


class RejectedRow(NamedTuple):
    """A row that becomes a dead letter, and the reason."""

    row: int
    reason: str
    stage: str
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """The result of splitting raw rows; dead letters have no batch number yet."""

    good: pa.RecordBatch
    late: pa.RecordBatch
    dead: pa.RecordBatch


class RowSplitter:
    """Decodes, checks and classifies the rows of one topic."""

    def __init__(self, pipeline: Pipeline, topic: str, decoder: Decoder, schema: pa.Schema) -> None:
        self._silver = pipeline.silver
        self._decoder = decoder
        key = pipeline.decode(topic).key
        self._key = open_decoder(key) if key else None
        self._checks = Checks(pipeline.silver.checks)
        self._schema = schema
        if pipeline.silver.upsert():
            self._schema = schema.append(pa.field(DELETED, pa.bool_()))

    def split(self, raw: pa.RecordBatch, watermark_ms: int | None) -> Split:
        """Split raw rows; each row is in exactly one part, except plain null values."""
        bad: list[RejectedRow] = []
        rows, kept = self._decode(raw, bad)
        rows, kept = self._check(rows, kept, bad)
        late = rows.slice(0, 0)
        if watermark_ms is not None and rows.num_rows:
            is_late = self._is_late(rows, watermark_ms)
            late, rows = rows.filter(is_late), rows.filter(pc.invert(is_late))
        return Split(rows, _with_watermark(late, watermark_ms), _dead(raw, bad))

    def max_event_ms(self, rows: pa.RecordBatch) -> int | None:
        """Return the latest event time of rows, in milliseconds."""
        if not self._silver.event_time or not rows.num_rows:
            return None
        latest: int | None = pc.max(_as_ms(rows.column(self._silver.event_time))).as_py()
        return latest

    def _decode(
        self, raw: pa.RecordBatch, bad: list[RejectedRow]
    ) -> tuple[pa.RecordBatch, pa.Array[Any]]:
        """Return the silver rows, and the number of the raw row for each."""
        decoded = self._decoder.decode(raw.column("value"))
        bad.extend(
            RejectedRow(reject.row, reject.reason, "decode", reject.schema_id)
            for reject in decoded.bad
        )
        values = decoded.values
        if self._silver.debezium:
            columns = _change_columns(values, bad)
        else:
            columns = _value_columns(values)
            if self._silver.upsert():
                columns[DELETED] = pc.is_null(raw.column("value"))
        if self._key is not None:
            keys = self._key.decode(raw.column("key"))
            bad.extend(
                RejectedRow(reject.row, reject.reason, "key", reject.schema_id)
                for reject in keys.bad
            )
            columns[KEY] = keys.values
        for name in COORDINATES.names:
            columns[name] = raw.column(name.removeprefix(PREFIX))
        rows = fit(pa.RecordBatch.from_pydict(columns), self._schema)
        kept = self._select_kept(raw, values, bad)
        return rows.take(kept), kept

    def _select_kept(
        self, raw: pa.RecordBatch, values: pa.Array[Any], bad: list[RejectedRow]
    ) -> pa.Array[Any]:
        """Return the numbers of rows to keep: not bad, and not null unless null deletes."""
        gone = {reject.row for reject in bad}
        if not self._silver.upsert() or self._silver.debezium:
            # A null value has no meaning, except in an upsert, where it deletes.
            gone.update(_numbers(pc.is_null(values)))
        return pa.array([row for row in range(raw.num_rows) if row not in gone], pa.int64())

    def _check(
        self, rows: pa.RecordBatch, kept: pa.Array[Any], bad: list[RejectedRow]
    ) -> tuple[pa.RecordBatch, pa.Array[Any]]:
        failed = self._checks.find_failed(self._checkable(rows))
        reasons = [f"check {name!r} is not true" if name else "" for name in failed]
        for column in self._list_required():
            for at in _numbers(pc.is_null(rows.column(column))):
                reasons[at] = reasons[at] or f"{column} is null"
        if self._silver.upsert() and self._silver.checks:
            # For a row that only deletes, only the key is checked.
            for at in _numbers(pc.fill_null(rows.column(DELETED), pa.scalar(value=False))):
                reasons[at] = reasons[at] if reasons[at].endswith("is null") else ""
        numbers: list[Any] = kept.to_pylist()
        bad.extend(RejectedRow(numbers[at], why, "check") for at, why in enumerate(reasons) if why)
        passed = pa.array([at for at, why in enumerate(reasons) if not why], pa.int64())
        return rows.take(passed), kept.take(passed)

    def _checkable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.drop_columns([DELETED]) if DELETED in rows.schema.names else rows

    def _list_required(self) -> list[str]:
        silver = self._silver
        keys = list(silver.keys) if silver.upsert() or silver.dedupe else []
        return [*keys, silver.event_time] if silver.event_time else keys

    def _is_late(self, rows: pa.RecordBatch, watermark_ms: int) -> pa.Array[Any]:
        times = _as_ms(rows.column(self._silver.event_time))
        return pc.less(times, pa.scalar(watermark_ms, pa.int64()))


def by_topic(raw: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
    """Yield rows topic by topic."""
    topics: list[Any] = pc.unique(raw.column("topic")).to_pylist()
    if len(topics) == 1:
        yield topics[0], raw
        return
    for topic in topics:
        yield topic, raw.filter(pc.equal(raw.column("topic"), pa.scalar(topic)))


def _value_columns(values: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
    if not isinstance(values, pa.StructArray):
        return {"value": values}
    return dict(zip((field.name for field in values.type), values.flatten(), strict=True))


def _change_columns(values: pa.Array[Any], bad: list[RejectedRow]) -> dict[str, pa.Array[Any]]:
    """Return the columns of change events: `after`, or `before` if the row is deleted."""
    while values.type != envelope(values.type):
        values = _value_columns(values)["payload"]
    parts = _value_columns(values)
    deleted = pc.equal(parts["op"], pa.scalar("d"))
    source = {True: parts["before"], False: parts["after"]}
    ops, gone = parts["op"].to_pylist(), {reject.row for reject in bad}
    for row, op in enumerate(ops):
        if row in gone or not values[row].is_valid:
            continue
        if op not in ("c", "u", "r", "d"):
            bad.append(RejectedRow(row, f"op is {op!r}, not c, u, r or d", "change"))
        elif not source[op == "d"][row].is_valid:
            which = "before" if op == "d" else "after"
            bad.append(RejectedRow(row, f"op is {op!r}, but {which} is null", "change"))
    before, after = _value_columns(parts["before"]), _value_columns(parts["after"])
    columns = {
        name: pc.if_else(deleted, before[name], after[name]) if name in before else after[name]
        for name in after
    }
    return {**columns, DELETED: deleted}


def _dead(raw: pa.RecordBatch, bad: list[RejectedRow]) -> pa.RecordBatch:
    first = {
        reject.row: reject for reject in sorted(bad, key=lambda reject: reject.row, reverse=True)
    }
    rejects = [first[row] for row in sorted(first)]
    rows = raw.take(pa.array([reject.row for reject in rejects], pa.int64()))
    columns: dict[str, Any] = {name: rows.column(name) for name in rows.schema.names}
    columns["reason"] = pa.array([reject.reason for reject in rejects], pa.string())
    columns["stage"] = pa.array([reject.stage for reject in rejects], pa.string())
    columns["schema_id"] = pa.array([reject.schema_id for reject in rejects], pa.int32())
    return fit(pa.RecordBatch.from_pydict(columns), DEAD)


def with_number(dead: pa.RecordBatch, name: str, number: int) -> pa.RecordBatch:
    """Return dead letters with the number of their batch or replay."""
    column = pa.array([number] * dead.num_rows, pa.int64())
    return dead.set_column(DEAD.get_field_index(name), DEAD.field(name), column)


def _with_watermark(rows: pa.RecordBatch, watermark_ms: int | None) -> pa.RecordBatch:
    value = None if watermark_ms is None else watermark_ms * 1000
    column = pa.array([value] * rows.num_rows, pa.int64()).cast(WATERMARK.type)
    return rows.append_column(WATERMARK, column)


def _as_ms(column: pa.Array[Any]) -> pa.Array[Any]:
    """Convert timestamps to milliseconds; numbers are already milliseconds."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64())


def _numbers(mask: Any) -> list[int]:
    return [at for at, is_set in enumerate(mask.to_pylist()) if is_set]
