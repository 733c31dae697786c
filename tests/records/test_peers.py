"""Batches go both ways between us and kafka-python, aiokafka and kio."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import kio.records.readers as kio_readers
import kio.records.schema as kio_schema
import kio.records.writers as kio_writers
import pytest
from aiokafka.record import (
    default_records as aio,
)
from aiokafka.record.memory_records import (
    MemoryRecords as AioRecords,
)
from kafka.record.default_records import (
    DefaultRecordBatchBuilder,
)
from kafka.record.memory_records import (
    MemoryRecords,
)
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from rookery.records import batches
from rookery.records.compression import CODECS, Codec
from rookery.records.recordcodec import BatchSettings, Record, build, read

NOW = 1_700_000_000_000
RECORDS = [
    Record(b"key-%d" % n, None if n % 7 == 3 else b"value-%d" % n * n, (), NOW + n * 1000, n)
    for n in range(60)
]
RECORDS[5] = RECORDS[5]._replace(headers=(("trace", b"abc"), ("none", None), ("ü", b"")), key=None)

Builder = Callable[[Codec], bytes]
Reader = Callable[[bytes], list[Record]]


def built_by(builder: Any) -> bytes:
    for record in RECORDS:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())


def kafka_python(codec: Codec) -> bytes:
    return built_by(DefaultRecordBatchBuilder(2, codec.id, False, 7, 1, 3, 1 << 20))


def aiokafka_native(codec: Codec) -> bytes:
    return built_by(aio.DefaultRecordBatchBuilder(2, codec.id, 0, 7, 1, 3, 1 << 20))


def aiokafka_python(codec: Codec) -> bytes:
    return built_by(aio._DefaultRecordBatchBuilderPy(2, codec.id, 0, 7, 1, 3, 1 << 20))


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
@pytest.mark.parametrize("write", [kafka_python, aiokafka_native, aiokafka_python])
def test_batches_of_clients_are_read(write: Builder, codec: Codec) -> None:
    data = write(codec)
    (header,) = batches.validate(data)
    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert list(read(data, header)) == RECORDS


def read_by(memory: Any) -> list[Record]:
    batch = memory.next_batch()
    assert batch.validate_crc()
    return [
        Record(record.key, record.value, tuple(record.headers), record.timestamp, record.offset)
        for record in batch
    ]


def by_kafka_python(data: bytes) -> list[Record]:
    return read_by(MemoryRecords(data))


def by_aiokafka(data: bytes) -> list[Record]:
    return read_by(AioRecords(data))


def by_aiokafka_python(data: bytes) -> list[Record]:
    batch = aio._DefaultRecordBatchPy(data)
    assert batch.validate_crc()
    return [Record(r.key, r.value, tuple(r.headers), r.timestamp or -1, r.offset) for r in batch]


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
@pytest.mark.parametrize("peer", [by_kafka_python, by_aiokafka, by_aiokafka_python])
def test_clients_read_our_batches(peer: Reader, codec: Codec) -> None:
    base = 100_000
    placed = [record._replace(offset=record.offset + base) for record in RECORDS]
    assert peer(build(placed, BatchSettings(codec=codec, base_offset=base))) == placed


@pytest.mark.parametrize("write", [kafka_python, aiokafka_native])
def test_bytes_equal_those_of_clients(write: Builder) -> None:
    settings = BatchSettings(producer_id=7, producer_epoch=1, base_sequence=3)
    ours, theirs = build(RECORDS, settings), write(CODECS[0])
    # The clients put 0 or -1 into the leader epoch, which is the broker's to set.
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


def kio_record(record: Record) -> kio_schema.Record:
    time = datetime.fromtimestamp(record.timestamp / 1000, UTC)
    return kio_schema.Record(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(time),
        offset=i64(record.offset),
        key=record.key,
        value=record.value,
        headers=tuple(
            kio_schema.RecordHeader(key=name.encode(), value=value)
            for name, value in record.headers
        ),
    )


def test_batches_of_kio_are_read() -> None:
    batch = kio_schema.NewRecordBatch(
        producer_id=i64(7),
        producer_epoch=i16(1),
        base_sequence=i32(3),
        records=tuple(map(kio_record, RECORDS)),
        attributes=i16(0),
    )
    buffer = io.BytesIO()
    kio_writers.write_batch(buffer, batch)
    data = buffer.getvalue()
    (header,) = batches.validate(data)
    assert list(read(data, header)) == RECORDS


def test_kio_reads_our_batches() -> None:
    batch, size = kio_readers.read_batch(build(RECORDS), 0)
    assert size == len(build(RECORDS))
    assert list(batch.records) == list(map(kio_record, RECORDS))
