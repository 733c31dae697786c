"""Batches without Spark: a task runs in this process over rows in memory.

It stands where a DataFrame does, so that the engine can be killed hundreds of times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Self

import pyarrow as pa

from rookery.pipeline.declaration.columns import RAW

START_MS = 1_700_000_000_000


class LocalRows:
    """Some rows, in as many tasks as there are batches."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def mapInArrow(  # noqa: N802 (Spark's name)
        self, work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
    ) -> Self:
        done = [part for batch in self._batches for part in work(iter([batch]))]
        return type(self)(done)

    def collect(self) -> list[Any]:
        return [row for batch in self._batches for row in batch.to_pylist()]


def raw(
    values: Iterable[bytes | None], *, partition: int = 0, begin: int = 0, topic: str = "birds"
) -> pa.RecordBatch:
    """Return consecutive records of one partition."""
    rows = [
        {
            "key": b"k%d" % (begin + number),
            "value": value,
            "topic": topic,
            "partition": partition,
            "offset": begin + number,
            "timestamp": datetime.fromtimestamp((START_MS + begin + number) / 1000, UTC),
            "timestampType": 0,
        }
        for number, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, RAW)


def bird(number: int, **more: object) -> bytes:
    """Return the JSON of a bird."""
    return json.dumps({"id": number, "name": f"bird {number}", **more}).encode()
