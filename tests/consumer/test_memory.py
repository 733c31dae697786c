"""The memory limit of a stream, and rows beyond it; on a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rookery
from rookery.consumer.faults import OutOfMemory
from rookery.consumer.settings import Spill
from rookery.errors import ConfigError
from rookery.testing.kafkalogs import NOON, Logs, rows

KIB = 1024


def ahead(topics: Logs, stem: str) -> str:
    """Make a topic whose first partition is later than the others in time, which are large."""
    topic = topics.create(stem, 3)
    for partition, start in ((0, 0), (1, 500_000), (2, 600_000)):
        moments = [NOON + start + n for n in range(1500)]
        topics.write(topic, partition, rows(moments, b"%d" + bytes(500)), size=100)
    return topic


def read(topics: Logs, topic: str, **options: Any) -> tuple[list[tuple[int, int]], Any]:
    """Return the places of all rows in order, and the shelves that held them."""
    with rookery.read(topics.bootstrap, topic, **options) as stream:
        table = stream.to_table()
        shelves = stream._get().shelves
        places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        return [(int(p or 0), int(o or 0)) for p, o in places], shelves


WHOLE = [(partition, offset) for partition in range(3) for offset in range(1500)]


def test_small_memory_gives_the_same_rows(topics: Logs) -> None:
    topic = ahead(topics, "little")

    read_rows, shelves = read(topics, topic, memory=400 * KIB)

    assert read_rows == WHOLE
    assert shelves.peak <= 400 * KIB + 200 * KIB  # and one batch
    assert shelves.held == 0


def test_rows_beyond_the_memory_are_spilled_to_files(topics: Logs, tmp_path: Path) -> None:
    topic = ahead(topics, "spilled")

    spilled, shelves = read(topics, topic, memory=300 * KIB, spill=Spill(tmp_path, 10_000 * KIB))
    full, too_full = read(topics, topic, memory=300 * KIB, spill=Spill(tmp_path, 100))

    assert spilled == full == WHOLE
    assert shelves.held == 0
    assert too_full.spill.written == 0  # it was fetched again instead
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="cannot be used"):
        read(topics, topic, spill=Spill(tmp_path / "none", 100))


def test_spilled_chunk_is_restored_unchanged(tmp_path: Path) -> None:
    from rookery.consumer.fetch.spill import SpillFiles  # noqa: PLC0415
    from rookery.consumer.order.block import Chunk  # noqa: PLC0415 (here only)
    from rookery.model.partition import TopicPartition  # noqa: PLC0415

    files = SpillFiles(Spill(tmp_path, 100))
    chunks = [Chunk(TopicPartition("t", n % 2), b"%d" % n * 20, n, n + 1, 9, 1) for n in range(4)]

    stored = [files.put(chunk) for chunk in chunks]

    assert [chunk is not None and chunk.data == b"" for chunk in stored] == [True] * 4
    assert files.put(chunks[0]) is not None
    assert files.put(chunks[0]) is None  # there is no room for more
    assert [files.take(chunk) for chunk in stored if chunk is not None] == chunks
    assert files.written == 100
    files.close()


def test_rows_needed_together_must_fit_into_memory(topics: Logs) -> None:
    topic = topics.create("held", 2)
    topics.write(topic, 0, rows([NOON + n for n in range(4000)], bytes(500)), size=100)
    topics.write(topic, 1, rows([NOON]))
    from datetime import timedelta  # noqa: PLC0415

    with pytest.raises(OutOfMemory, match="bytes are needed") as caught:
        read(topics, topic, memory=500 * KIB, lateness=timedelta(hours=1))

    assert caught.value.needed > caught.value.memory == 500 * KIB
    assert caught.value.places
