"""A stream over a bucket that KafScale writes, and deletes from."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

from rookery.direct.place import ClusterAddress
from rookery.formats.keys import segment_key
from rookery.spark.read.options import ReadOptions
from rookery.spark.read.streamread import StreamReader
from rookery.store.open import open_store
from tests.direct.test_kafscale import place as place  # noqa: PLC0414 (a fixture)
from tests.direct.test_kafscale import segment
from tests.spark.test_stream import offsets_of


def test_partition_without_files_is_awaited(place: ClusterAddress, tmp_path: Path) -> None:
    options = {"store": place.store, "namespace": "production", "layout": "kafscale"}
    options |= {"subscribe": "t", "startingOffsets": "earliest"}
    given = ReadOptions.of(options, is_stream=True)
    reader = StreamReader(given.with_columns(("offset",)))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(offsets_of(reader, start, end)) == 150

    async def expire() -> None:
        store = open_store(place.store)
        for base in (0, 50):
            await store.delete(segment_key("production", "t", 0, base))
        await store.create(segment_key("production", "t", 2, 60), [segment(60, 20)])
        await store.close()

    asyncio.run(expire())
    after = reader.latestOffset(end, ReadAllAvailable())
    assert offsets_of(reader, end, after) == list(range(60, 80))
    reader.stop()
