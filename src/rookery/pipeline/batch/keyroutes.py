"""Routes rows with the same key to the same task, which only deduplication needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rookery.decode.open import open_decoder
from rookery.decode.port import DecoderSettings
from rookery.pipeline.batch.headers import fill_headers
from rookery.pipeline.batch.rowsplitter import RowSplitter, by_topic
from rookery.pipeline.batch.seenkeys import BUCKETS, bucket_of, key_hashes
from rookery.pipeline.declaration.columns import RAW
from rookery.pipeline.declaration.names import OFFSET, PARTITION
from rookery.pipeline.declaration.spec import Pipeline
from rookery.tables.schemas import fit

if TYPE_CHECKING:
    from rookery.pipeline.batch.engine import BatchPlan, RawRows

_BUCKET: Final = "_bucket"
_NONE: Final = 0
"""The bucket of rows without a key: bad and late rows are not deduplicated."""


def route_rows(plan: BatchPlan, rows: RawRows) -> RawRows:
    """Return the rows, grouped by key into tasks if keys are deduplicated."""
    if not plan.pipeline.silver.dedupe or not plan.silver:
        return rows
    task = _BucketTask(plan.pipeline, plan.decoders, plan.silver)
    bucketed = rows.mapInArrow(task, f"{_columns()}, {_BUCKET} int")
    return fill_headers(bucketed.repartition(BUCKETS, _BUCKET).drop(_BUCKET))


def _columns() -> str:
    from rookery.spark.schema import ALL_COLUMNS, spark_schema  # noqa: PLC0415 (it takes a second)

    fields = spark_schema(ALL_COLUMNS).fields
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)


@dataclass(frozen=True, slots=True)
class _BucketTask:
    pipeline: Pipeline
    decoders: Mapping[str, tuple[str, DecoderSettings]]
    silver: Mapping[str, pa.Schema]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        splitters: dict[str, RowSplitter] = {}
        for batch in batches:
            raw = fit(batch, RAW)
            for topic, rows in by_topic(raw) if raw.num_rows else ():
                if topic not in splitters:
                    decoder = open_decoder(*self.decoders[topic])
                    splitters[topic] = RowSplitter(
                        self.pipeline, topic, decoder, self.silver[topic]
                    )
                yield self._assign_buckets(splitters[topic], rows)

    def _assign_buckets(self, splitter: RowSplitter, rows: pa.RecordBatch) -> pa.RecordBatch:
        good = splitter.split(rows, None).good
        places: list[object] = good.column(OFFSET).to_pylist()
        partitions: list[object] = good.column(PARTITION).to_pylist()
        hashes = key_hashes(good, self.pipeline.silver.keys)
        buckets = {
            where: bucket_of(key)
            for where, key in zip(zip(partitions, places, strict=True), hashes, strict=True)
        }
        wanted = zip(
            rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), strict=True
        )
        column = pa.array([buckets.get(where, _NONE) for where in wanted], pa.int32())
        return rows.append_column(pa.field(_BUCKET, pa.int32()), column)
