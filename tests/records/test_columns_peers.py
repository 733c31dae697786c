"""Columns against two independent clients, in both directions."""

from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record import default_records as aiokafka_records
from kafka.record import default_records as kafka_python_records

from rookery.records.columns import decode, encode
from rookery.records.compression import CODECS, Codec
from rookery.records.reading import COLUMNS, PartitionBatches, ReadSettings
from rookery.records.writing import WriteSettings

Record = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
BASE = 1_700_000_000_000
BUILDERS = [
    kafka_python_records.DefaultRecordBatchBuilder,
    aiokafka_records._DefaultRecordBatchBuilderCython,
    aiokafka_records._DefaultRecordBatchBuilderPy,
]
READERS = [
    kafka_python_records.DefaultRecordBatch,
    aiokafka_records._DefaultRecordBatchCython,
    aiokafka_records._DefaultRecordBatchPy,
]
by_name = pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)


def records(count: int = 2000) -> list[Record]:
    out: list[Record] = []
    for i in range(count):
        headers: list[tuple[str, bytes | None]] = [(f"h{n}", b"x" * n) for n in range(i % 4)]
        if i % 7 == 0:
            headers.append(("null", None))
        key = None if i % 3 == 0 else b"" if i % 5 == 0 else b"key-%d" % i
        value = None if i % 11 == 0 else b"" if i % 13 == 0 else b"value %d " % i * (i % 200)
        # Times go back now and then, and once very far.
        when = BASE + i * 7 % 1000 - (10**11 if i == 99 else 0)
        out.append((i, when, key, value, headers))
    return out


def built(builder: Any, codec: Codec) -> bytes:
    made = builder(2, codec.id, 0, -1, -1, -1, 1 << 30)
    for record in records():
        assert made.append(*record) is not None
    return bytes(made.build())


def rows_of(batches: list[pa.RecordBatch]) -> list[Record]:
    table = pa.Table.from_batches(batches)
    times = table.column("timestamp").cast(pa.int64())
    plain = table.set_column(table.schema.names.index("timestamp"), "timestamp", times)
    return [
        (
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in plain.to_pylist()
    ]


@by_name
@pytest.mark.parametrize("builder", BUILDERS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_batches_of_other_libraries_are_read(builder: Any, codec: Codec) -> None:
    data = built(builder, codec)

    decoded = rows_of(list(decode([PartitionBatches("t", 0, data)], ReadSettings(COLUMNS))))

    assert decoded == records()


@by_name
@pytest.mark.parametrize("reader", READERS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_other_libraries_read_our_batches(reader: Any, codec: Codec) -> None:
    names = ["offset", "timestamp", "key", "value", "headers"]
    kinds = [pa.int64(), pa.timestamp("ms", tz="UTC"), pa.binary(), pa.binary()]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    wanted = records()
    arrays = [
        pa.array(items, kind)
        for items, kind in zip(zip(*wanted, strict=True), [*kinds, headers], strict=True)
    ]
    table = pa.Table.from_arrays(arrays, names)

    decoded: list[Record] = []
    for batch in encode(table, WriteSettings(codec, max_batch_bytes=50_000)):
        theirs = reader(bytes(batch))
        assert theirs.validate_crc()
        decoded += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs]

    assert decoded == wanted
