"""How fast do record batches become Arrow columns, and columns batches, against other clients?

Every row is CPU time per record, the median of several runs. CRCs are checked by all but one: in
aiokafka's pure Python the CRC alone would take longer than all else. "x" is how
many times longer it takes than Rookery with all nine columns, RecordBatch included. Of the others
only the iteration over their record objects is counted, unless the row says otherwise.

    python bench/columns.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from aiokafka.record import default_records as aiokafka_records
from kafka.record import default_records as kafka_python_records

from rookery.records import columns
from rookery.records.columns import decode, encode
from rookery.records.compression import CODECS
from rookery.records.reading import COLUMNS, PartitionBatches, ReadSettings
from rookery.records.twins import columnstwin
from rookery.records.writing import WriteSettings

MEBIBYTE = 1 << 20
SEVEN = tuple(name for name in COLUMNS if name not in ("headers", "leader_epoch"))
PURE = "aiokafka-pure"


def main() -> None:
    """Print all tables, or one figure for the process that runs without extensions."""
    if sys.argv[1:2] == [PURE]:
        batch = one_batch(int(sys.argv[2]))
        print(time_iterations(aiokafka_records.DefaultRecordBatch, [batch], check_crc=False))
        return
    for size in (100, 1000):
        print_decode(size)
    print_shapes()
    print_encode()


def print_decode(size: int) -> None:
    """Compare one batch of a mebibyte, read by everyone."""
    batch = one_batch(size)
    ours = time_decode([batch], ReadSettings())
    rows = {
        "Rookery, all nine columns": ours,
        "Rookery, seven columns": time_decode([batch], ReadSettings(SEVEN)),
        "Rookery, binary_view": time_decode([batch], ReadSettings(views=True)),
        "Rookery, offset and timestamp": time_decode(
            [batch], ReadSettings(("offset", "timestamp"))
        ),
        "Rookery, pure Python": time_twin(batch),
        "aiokafka, Cython": time_iteration(aiokafka_records.DefaultRecordBatch, batch),
        "aiokafka, Cython, then to Arrow": time_aiokafka_to_arrow(batch),
        "aiokafka, pure Python, no CRC": run_pure(size),
        "kafka-python": time_iteration(kafka_python_records.DefaultRecordBatch, batch),
    }
    print(f"\ndecode: 1 MiB batch, {size} B values, ns per record")
    for name, figure in rows.items():
        print(f"  {name:<32}{figure:>10.1f}{figure / ours:>10.1f}x")


def print_shapes() -> None:
    """Show what batch size and compression cost."""
    print("\ndecode: 100 B values, ns per record, and against aiokafka's Cython")
    for label, batches in shapes().items():
        ours = time_decode(batches, ReadSettings())
        theirs = time_iterations(aiokafka_records.DefaultRecordBatch, batches)
        print(f"  {label:<32}{ours:>10.1f}{theirs:>10.1f}{theirs / ours:>10.1f}x")


def print_encode() -> None:
    """Compare writing."""
    print("\nencode: 100 B values, ns per record")
    rows = table(100, MEBIBYTE)
    ours = per_record(lambda: list(encode(rows)), rows.num_rows)
    theirs = per_record(lambda: build(rows), rows.num_rows)
    print(f"  {'Rookery':<32}{ours:>10.1f}")
    print(f"  {'aiokafka, Cython':<32}{theirs:>10.1f}{theirs / ours:>10.1f}x")


def shapes() -> dict[str, list[bytearray]]:
    """Make the same rows in batches of several kinds."""
    rows = table(100, MEBIBYTE)
    made = {
        f"{codec.name}, 1 MB": list(encode(rows, WriteSettings(codec))) for codec in CODECS.values()
    }
    for size in (16_000, 1_000, 200):
        made[f"none, {size} B"] = list(encode(rows, WriteSettings(max_batch_bytes=size)))
    return made


def table(size: int, total: int) -> pa.RecordBatch:
    """Make rows with an 8 byte key and a value that compresses about threefold."""
    count = total // (size + 20)
    values = [(f'{{"id": {i}, "name": "n{i % 97}"}}' * 60)[:size].encode() for i in range(count)]
    times = pa.array(range(1_700_000_000_000, 1_700_000_000_000 + count), pa.timestamp("ms", "UTC"))
    keys = [b"%08d" % i for i in range(count)]
    return pa.record_batch({"key": keys, "value": values, "timestamp": times})


def one_batch(size: int) -> bytearray:
    """Make one batch of about a mebibyte."""
    [batch] = encode(table(size, MEBIBYTE), WriteSettings(max_batch_bytes=2 * MEBIBYTE))
    return batch


def time_decode(batches: list[bytearray], reading: ReadSettings) -> float:
    """Time our decoder; batches that follow each other come as one buffer, as fetched."""
    data = b"".join(batches)
    count = sum(rows.num_rows for rows in decode([PartitionBatches("bench", 0, data)], reading))
    return per_record(lambda: list(decode([PartitionBatches("bench", 0, data)], reading)), count)


def time_twin(batch: bytearray) -> float:
    """Time our decoder as it is where nothing was compiled."""
    names = vars(columns)
    compiled = names["_columns"]
    names["_columns"] = columnstwin
    try:
        return time_decode([batch], ReadSettings())
    finally:
        names["_columns"] = compiled


def time_iteration(reader: Callable[[bytes], Any], batch: bytearray) -> float:
    """Time another client's reader on one batch."""
    return time_iterations(reader, [batch])


def time_iterations(
    reader: Callable[[bytes], Any], batches: list[bytearray], *, check_crc: bool = True
) -> float:
    """Time another client's reader on batches, one after another."""
    blobs = [bytes(batch) for batch in batches]

    def run() -> int:
        count = 0
        for blob in blobs:
            records = reader(blob)
            if check_crc:
                records.validate_crc()
            for _ in records:
                count += 1
        return count

    return per_record(run, run())


def time_aiokafka_to_arrow(batch: bytearray) -> float:
    """Time what users of aiokafka do for columns: lists of what the records hold, then arrays."""
    blob = bytes(batch)

    def run() -> pa.RecordBatch:
        records = aiokafka_records.DefaultRecordBatch(blob)
        records.validate_crc()
        rows = [(r.offset, r.timestamp, r.key, r.value) for r in records]
        names = ["offset", "timestamp", "key", "value"]
        return pa.record_batch([pa.array(column) for column in zip(*rows, strict=True)], names)

    return per_record(run, run().num_rows)


def build(rows: pa.RecordBatch) -> list[bytearray]:
    """Write rows with aiokafka, from Python objects as it needs them."""
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2 * MEBIBYTE)
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
    for i, (when, key, value) in enumerate(zip(times, keys, values, strict=True)):
        builder.append(i, when, key, value, [])
    return [builder.build()]


def run_pure(size: int) -> float:
    """Time aiokafka in a process of its own, where it finds no extensions."""
    command = [sys.executable, __file__, PURE, str(size)]
    env = {**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}
    return float(subprocess.run(command, env=env, check=True, capture_output=True).stdout)


def per_record(run: Callable[[], object], count: int) -> float:
    """Return nanoseconds of CPU time per record, the median of seven runs of 50 ms or more."""
    run()
    repeat = 1
    figures: list[float] = []
    while len(figures) < 7:
        start = time.process_time()
        for _ in range(repeat):
            run()
        spent = time.process_time() - start
        if spent < 0.05 and not figures:
            repeat *= 2
            continue
        figures.append(spent / repeat / count * 1e9)
    return statistics.median(figures)


if __name__ == "__main__":
    main()
