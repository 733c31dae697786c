"""The offset map from old to new offsets of each record, with one Parquet file per slice.

    source_topic, source_partition, source_offset ──► topic, partition, offset

To move a consumer group, look up its offsets on the left and commit those on the right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rookery.errors import ConfigError, Conflict
from rookery.store.open import is_url, open_store

Bases: TypeAlias = Mapping[tuple[str, int], int]
"""The offset of each partition's first record, by topic and partition."""

_PIECE: Final[dict[str, pa.DataType]] = {
    "source_topic": pa.dictionary(pa.int32(), pa.string()),
    "source_partition": pa.int32(),
    "source_offset": pa.int64(),
    "topic": pa.dictionary(pa.int32(), pa.string()),
    "partition": pa.int32(),
}
PIECE: Final = pa.schema(_PIECE)
"""The columns that a task knows: all but the offset."""


def piece(batch: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
    """Record the source of rows and their target partition."""
    columns: list[Any] = [
        batch.column("topic"),
        batch.column("partition"),
        batch.column("offset"),
        records.column("topic").dictionary_encode(),
        records.column("partition"),
    ]
    return pa.record_batch(columns, schema=PIECE)


def pack_pieces(pieces: Sequence[pa.RecordBatch]) -> bytes:
    """Serialise pieces for the driver."""
    table = pa.Table.from_batches(pieces, PIECE).unify_dictionaries()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PIECE) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def map_offsets(pieces: Sequence[bytes], bases: Bases) -> pa.Table:
    """Assign an offset to every row: those of a partition are consecutive from its base on."""
    tables = [PIECE.empty_table(), *(pa.ipc.open_stream(data).read_all() for data in pieces)]
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    topics: Any = table.column("topic").combine_chunks()
    numbers = topics.indices.to_numpy()
    partitions = table.column("partition").to_numpy()
    offsets = np.zeros(table.num_rows, np.int64)
    for number, topic in enumerate(topics.dictionary.to_pylist()):
        for partition in np.unique(partitions[numbers == number]).tolist():
            rows = np.flatnonzero((numbers == number) & (partitions == partition))
            offsets[rows] = bases[topic, partition] + np.arange(len(rows))
    return table.append_column("offset", pa.array(offsets))


def slice_name(number: int) -> str:
    """Return the file name of a slice."""
    return f"slice-{number:06}.parquet"


class OffsetMapFolder:
    """A folder of offset map files, on this host or in a store."""

    def __init__(self, where: str) -> None:
        """Open it by a path, or by a URL such as s3://bucket/folder."""
        self.where = where if is_url(where) else str(Path(where).absolute())
        """The absolute location, valid anywhere on this host."""
        self._store = open_store(self.where)

    async def find_missing(self, numbers: range) -> list[int]:
        """Return the slices that do not exist."""
        stored = {file.key for file in await self._store.list("slice-")}
        return [number for number in numbers if slice_name(number) not in stored]

    async def check_empty(self) -> None:
        """Check that a job can start its map here.

        Raises:
            ConfigError: there already is a map, of another job or of deleted topics.
        """
        if await self._store.list("slice-"):
            raise ConfigError(
                f"offset map {self.where}: it is of an earlier job; name another folder"
            )

    async def write(self, number: int, table: pa.Table) -> None:
        """Write a slice; an existing one is kept, since it is identical."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        try:
            await self._store.create(slice_name(number), [sink.getvalue().to_pybytes()])
        except Conflict:
            return

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
