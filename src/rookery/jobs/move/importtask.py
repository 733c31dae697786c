"""One task of an import: stages rows that Spark has read."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.blockinglog import open_shared
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress, check_host
from rookery.direct.rowstager import RowStager
from rookery.jobs.proof import Proof, prove
from rookery.jobs.tasks import TaskFailure, outcome

FILE: Final = "_file"
START: Final = "_start"
"""Columns with the file of a row and the start position of the part that was read."""
_FIELDS: Final[dict[str, pa.DataType]] = {"result": pa.binary()}
_RESULT: Final = pa.schema(_FIELDS)


class Load(NamedTuple):
    """The parameters that all tasks of a slice share."""

    place: ClusterAddress
    host: str
    batch: SinkBatch
    packing: PackSettings
    proved: tuple[str, ...]


class LoadResult(NamedTuple):
    """The result of a task."""

    order: tuple[str, int]
    """The file and the position in it."""
    object_ids: list[int]
    proof: Proof


def load(task: Load, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stage the rows of a Spark task; yield one row with the result."""
    result: LoadResult | TaskFailure | None = outcome(lambda rows: _load(task, rows), batches)
    if result is not None:
        yield pa.record_batch([[pickle.dumps(result)]], schema=_RESULT)


def _load(task: Load, batches: Iterable[pa.RecordBatch]) -> LoadResult | None:
    check_host(task.place, task.host)
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    order = str(first.column(FILE)[0].as_py()), int(first.column(START)[0].as_py() or 0)
    log = open_shared(task.place)
    staging = RowStager(log.log, task.batch, task.packing)
    now_ms = log.log.clock.now_ms()

    def sent() -> Iterator[pa.RecordBatch]:
        for batch in _chain(first, filled):
            records = set_times(batch.drop_columns([FILE, START]), now_ms)
            log.run(staging.add(records))
            yield records.select(list(task.proved))

    try:
        log.run(staging.start())
        proof = prove(sent())
        objects = log.run(staging.finish())
    except BaseException:
        log.run(staging.abort())
        raise
    return LoadResult(order, [staged.object_id for staged in objects], proof)


def set_times(rows: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Set missing timestamps to the time of the import, so that stored and proved rows agree."""
    place = rows.schema.get_field_index("timestamp")
    if place < 0 or not rows.column(place).null_count:
        return rows
    kind = rows.schema.field(place).type
    now = pa.scalar(now_ms, pa.timestamp("ms", tz=kind.tz)).cast(kind)
    return rows.set_column(place, "timestamp", rows.column(place).fill_null(now))


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
