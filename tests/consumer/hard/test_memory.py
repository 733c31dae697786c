"""The memory bound holds for large records and for batches that expand when decompressed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import pyarrow as pa
import pytest

from rookery.consumer.api import read
from rookery.consumer.faults import OutOfMemory
from rookery.testing.kafkalogs import NOON, Logs, pack_rows, rows

MIB: Final = 1 << 20
MEMORY: Final = 64 * MIB
BATCH_BYTES: Final = 4 * MIB
GIANT: Final = 8 * MIB
SWOLLEN: Final = 40 * MIB
BOMB: Final = 160 * MIB
MOST: Final = 128 * MIB


def _grow(logs: Logs, topic: str) -> dict[str, Any]:
    numbers = [str(number) for number in (MEMORY, MOST, BATCH_BYTES)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.consumer.hard.growth", logs.bootstrap, topic, *numbers],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _zeros(times: list[int], size: int) -> pa.RecordBatch:
    return rows(times, b"\0" * size)


def test_giant_batches_stay_within_the_memory_bound(logs: Logs) -> None:
    topic = logs.create("giants", 8)
    count = 0
    for partition in range(8):
        for step in range(3):
            base = NOON + 100_000 * step + 10_000 * partition
            logs.append(
                topic, {partition: pack_rows(rows([base + n for n in range(500)], b"x" * 100))}
            )
            logs.append(topic, {partition: pack_rows(_zeros([base + 600], GIANT))})
            # One batch of many rows that is fifty times as large when it is opened.
            swollen = _zeros([base + 700 + n for n in range(400)], SWOLLEN // 400)
            logs.append(topic, {partition: pack_rows(swollen, "lz4")})
            count += 901

    report = _grow(logs, topic)

    assert report["error"] is None
    assert report["rows"] == count
    assert report["largest_of_many"] <= BATCH_BYTES + SWOLLEN // 400 + MIB
    assert report["grown"] <= MEMORY + SWOLLEN + 64 * MIB, f"{report['grown'] / MIB:.0f} MiB"


def test_decompression_bomb_is_an_error_with_its_position(logs: Logs) -> None:
    topic = logs.create("bomb", 2)
    logs.append(topic, {0: pack_rows(rows([NOON + n for n in range(100)]))})
    logs.append(topic, {1: pack_rows(rows([NOON + n for n in range(100)]))})
    logs.append(topic, {1: pack_rows(_zeros([NOON + 500] * 200, BOMB // 200), "lz4")})

    report = _grow(logs, topic)

    assert report["error"] == [topic, 1, 100]
    assert report["rows"] == 200  # all that comes before it was handed out
    assert report["grown"] <= MEMORY + MOST + 64 * MIB


def test_insufficient_memory_for_first_batches_is_reported_with_the_needed_size(logs: Logs) -> None:
    topic = logs.create("heads", 8)
    for partition in range(8):
        batch = _zeros([NOON + 10 * n + partition for n in range(3)], MIB)
        logs.append(topic, {partition: pack_rows(batch)})

    with (
        read(logs.bootstrap, topic, memory=2 * MIB) as stream,
        pytest.raises(OutOfMemory) as caught,
    ):
        stream.to_table()

    assert caught.value.needed > 2 * MIB
    assert "spill" in str(caught.value)
    with read(logs.bootstrap, topic, memory=caught.value.needed) as stream:
        assert stream.to_table().num_rows == 24
