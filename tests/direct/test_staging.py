"""Staging: rows become objects by partition, in their order, within what the topic allows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rookery.client.produce.partition import partition_of
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.commit import commit
from rookery.direct.layout import PackSettings
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.direct.rowstager import RowStager, abort
from rookery.errors import ApiError, ConfigError
from rookery.formats.keys import object_key
from rookery.formats.manifest import read_head
from rookery.records import batches
from rookery.records.crc import checksum
from tests.direct.sinking import (
    BATCH,
    faults,
    make_cluster,
    make_topic,
    read_partition,
    read_topic,
    rows,
    stage,
    values_of,
    write,
)


@pytest.fixture
async def place(tmp_path: Path) -> ClusterAddress:
    return await make_cluster(tmp_path)


@pytest.fixture
async def log(place: ClusterAddress) -> AsyncIterator[DirectLog]:
    async with DirectLog.open(place) as opened:
        yield opened


async def test_rows_are_partitioned_like_java_and_keep_their_order(
    log: DirectLog, place: ClusterAddress
) -> None:
    await make_topic(log)
    # Many small batches into many small objects, several of them under way at a time.
    sent = [rows(700, start) for start in range(0, 35_000, 700)]
    done = await write(log, *sent, object_bytes=64 * 1024, batch_bytes=2048, uploads=3)
    assert done.records == 35_000
    for partition, records in enumerate(await read_topic(log)):
        numbers = [int((record.value or b"")[1:]) for record in records]
        expected = [n for n in range(35_000) if partition_of(b"k%d" % (n % 100), 4) == partition]
        assert numbers == expected
    assert not await faults(place)


async def test_staged_rows_are_invisible_before_the_commit(
    log: DirectLog, place: ClusterAddress
) -> None:
    await make_topic(log)
    objects = await stage(log, rows(10))
    assert await values_of(log) == []
    assert not await faults(place)
    await commit(log, BATCH, [staged.object_id for staged in objects])
    assert len(await values_of(log)) == 10


async def test_staging_report_describes_the_written_object(log: DirectLog) -> None:
    await make_topic(log)
    [told] = await stage(log, rows(1000))
    data = await log.store.read(object_key(told.object_id))
    manifest, begin = read_head(data)
    crc = checksum(data[:begin])
    for header, _ in batches.split(data[begin:]):
        at = begin + header.position
        crc = checksum(data[at : at + batches.HEADER_SIZE], crc)
    assert (told.rows, told.size, told.crc) == (1000, len(data), crc)
    assert told.runs == len(manifest.extents) == 4
    assert begin + sum(extent.size for extent in manifest.extents) == len(data)


async def test_column_can_name_the_partition(log: DirectLog) -> None:
    await make_topic(log)
    named = [number % 4 if number % 3 else None for number in range(300)]
    sent = rows(300, partition=pa.array(named, pa.int32()))
    await write(log, sent.slice(0, 150), sent.slice(150))
    for partition in range(4):
        numbers = [
            int((record.value or b"")[1:]) for record in await read_partition(log, partition)
        ]
        chosen = [
            n for n in range(300)
            if (named[n] if named[n] is not None else partition_of(b"k%d" % (n % 100), 4))
            == partition
        ]  # fmt: skip
        assert numbers == chosen


@pytest.mark.parametrize("partition", [-1, 4])
async def test_unknown_partition_is_refused(log: DirectLog, partition: int) -> None:
    await make_topic(log)
    sent = rows(2, partition=pa.array([0, partition], pa.int32()))
    with pytest.raises(ApiError, match=f"names partition {partition} of topic t, which has 4"):
        await write(log, sent)


async def test_rows_without_keys_stick_to_a_partition_and_rotate(log: DirectLog) -> None:
    await make_topic(log)
    big = [b"%06d" % number + bytes(1000) for number in range(2000)]
    await write(log, rows(2000, key=pa.nulls(2000, pa.binary()), value=big), object_bytes=1 << 20)
    parts = [[(record.value or b"")[:6] for record in part] for part in await read_topic(log)]
    assert all(300 < len(part) < 700 for part in parts)
    assert all(part == sorted(part) for part in parts)
    # A few stay together.
    await write(log, rows(50, key=pa.nulls(50, pa.binary())), batch=SinkBatch("sink", "query", 1))
    grown = [len(after) - len(part)
             for after, part in zip(await read_topic(log), parts, strict=True)]  # fmt: skip
    assert sorted(grown) == [0, 0, 0, 50]


async def test_rows_with_and_without_keys_can_be_mixed(log: DirectLog) -> None:
    await make_topic(log)
    keys = [b"k%d" % number if number % 2 else None for number in range(1000)]
    await write(log, rows(1000, key=keys))
    for partition, records in enumerate(await read_topic(log)):
        assert all(
            partition_of(record.key, 4) == partition for record in records if record.key is not None
        )
    assert len(await values_of(log)) == 1000


async def test_rows_go_to_the_topics_they_name(log: DirectLog) -> None:
    await make_topic(log, "a", 1)
    await make_topic(log, "b", 3)
    names = ["a" if number % 3 else "b" for number in range(99)]
    await write(log, rows(99, topic=names), topic="")
    assert len(await values_of(log, "a")) == 66
    for partition, records in enumerate(await read_topic(log, "b")):
        assert all(partition_of(record.key or b"", 3) == partition for record in records)
    # The option has the last word, as in Spark's own sink.
    await write(log, rows(9, topic=["b"] * 9), topic="a", batch=SinkBatch("other", "query", 0))
    assert len(await values_of(log, "a")) == 75
    with pytest.raises(ApiError, match="1 rows have no topic"):
        await stage(log, rows(2, topic=["a", None]), topic="", batch=SinkBatch("x", "q", 0))


async def test_missing_topic_is_created_only_on_request(log: DirectLog) -> None:
    with pytest.raises(ApiError, match="there is no topic 't'; create it, or set createTopic"):
        await stage(log, rows(1))
    staging = RowStager(log, BATCH, PackSettings(topic="t"), create_partitions=3)
    await staging.start()
    assert len(log.state.topics.by_name["t"].partitions) == 3
    for name, count, fault in (("..", 1, "not a topic name"), ("x", 10_001, "from 1 to 10000")):
        staging = RowStager(log, BATCH, PackSettings(topic=name), create_partitions=count)
        with pytest.raises((ApiError, ConfigError), match=fault):
            await staging.start()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_rows_are_compressed_with_the_chosen_codec(
    log: DirectLog, place: ClusterAddress, codec: str
) -> None:
    await make_topic(log, partitions=1)
    [plain] = await stage(log, rows(5000), batch=SinkBatch("plain", "q", 0))
    done = await write(log, rows(5000), compression=codec)
    assert done.records == 5000
    data = await read_partition(log, 0)
    assert [record.value for record in data] == [b"v%d" % number for number in range(5000)]
    size = sum(log.state.topics.by_name["t"].partitions[0].sizes)
    assert (size < plain.size * 0.9) == (codec != "none")
    assert not await faults(place)


async def test_codec_required_by_the_topic_is_used(log: DirectLog) -> None:
    await make_topic(log, partitions=1, compression_type="zstd")
    [told] = await stage(log, rows(5000), compression="none")
    manifest, _ = read_head(await log.store.read(object_key(told.object_id)))
    assert {extent.attributes & 7 for extent in manifest.extents} == {4}


async def test_timestamps_come_from_rows_the_clock_or_the_log(log: DirectLog) -> None:
    await make_topic(log, partitions=1)
    before = log.clock.now_ms()
    times = pa.array([1_600_000_000_123_456, None], pa.timestamp("us", tz="UTC"))
    await write(log, rows(2, timestamp=times))
    stated, given = await read_partition(log, 0)
    assert stated.timestamp == 1_600_000_000_123
    assert before <= given.timestamp <= log.clock.now_ms()
    await make_topic(log, "late", 1, message_timestamp_type="LogAppendTime")
    sent = rows(2, timestamp=times)
    await write(log, sent, topic="late", batch=SinkBatch("other", "query", 0))
    row = log.state.topics.by_name["late"].partitions[0].row(0)
    assert row.is_append_time
    assert row.max_timestamp >= before


@pytest.mark.parametrize(
    ("configs", "sent", "fault"),
    [
        ({"max_message_bytes": "200"}, rows(1, value=[bytes(300)]),
         "topic t partition 0: row 0: .*max.message.bytes is 200"),
        ({"cleanup_policy": "compact"}, rows(2, key=[b"k", None]),
         "topic t partition 0: 1 rows have no key, and the topic is compacted"),
        ({"cleanup_policy": "compact,delete"}, rows(3).select(["value"]),
         "3 rows have no key"),
        ({}, rows(1, timestamp=pa.array([1 << 42], pa.timestamp("ms"))),
         "message.timestamp.after.max.ms is 3600000"),
        ({"message_timestamp_before_max_ms": "1000"},
         rows(1, timestamp=pa.array([5], pa.timestamp("ms"))),
         "message.timestamp.before.max.ms is 1000"),
    ],
)  # fmt: skip
async def test_topic_configs_are_respected(
    log: DirectLog, configs: dict[str, str], sent: pa.RecordBatch, fault: str
) -> None:
    await make_topic(log, partitions=1, **configs)
    with pytest.raises(ApiError, match=fault):
        await write(log, sent)
    assert await values_of(log) == []


async def test_batches_are_as_large_as_the_topic_allows(log: DirectLog) -> None:
    await make_topic(log, partitions=1, max_message_bytes="5000")
    await write(log, rows(1000, value=[bytes(100)] * 1000))
    assert len(await read_partition(log, 0)) == 1000


@pytest.mark.parametrize(
    ("size", "configs", "codec"),
    [
        (1_048_588 - 61 - 20, {}, "none"),  # as much as a broker takes by default
        (3_000_000, {}, "zstd"),  # what counts is what is stored
        (3_000_000, {"max_message_bytes": "4000000"}, "none"),
        (6_000, {"max_message_bytes": "5000", "compression_type": "gzip"}, "none"),
    ],
)
async def test_record_larger_than_a_batch_has_its_own_batch(
    log: DirectLog, place: ClusterAddress, size: int, configs: dict[str, str], codec: str
) -> None:
    await make_topic(log, partitions=1, **configs)
    values = [b"a", b"b" * size, b"c", b"d"]
    await write(log, rows(4, value=values), compression=codec)
    assert [record.value for record in await read_partition(log, 0)] == values
    assert not await faults(place)


@pytest.mark.parametrize(
    ("size", "configs", "codec", "fault"),
    [
        (1_048_588, {}, "none", "max.message.bytes is 1048588: raise it, or choose a compression"),
        (
            6_000,
            {"max_message_bytes": "70"},
            "zstd",
            "alone makes .* bytes by zstd; the topic's max",
        ),
        (64 << 20, {"max_message_bytes": "200000000"}, "zstd", "at most 67108864 bytes"),
    ],
)
async def test_record_larger_than_the_topic_allows_is_refused(
    log: DirectLog, size: int, configs: dict[str, str], codec: str, fault: str
) -> None:
    await make_topic(log, partitions=1, **configs)
    with pytest.raises(ApiError, match=f"topic t partition 0: .*{fault}"):
        await write(log, rows(2, value=[b"a", bytes(size)]), compression=codec)
    assert await values_of(log) == []


@pytest.mark.parametrize(
    ("columns", "topic", "fault"),
    [
        ({"value": pa.array([1])}, "t", "column `value` of type int64 must be binary or text"),
        ({"value": ["v"], "key": pa.array([1.5])}, "t", "column `key` of type double"),
        ({"key": ["k"]}, "t", "there must be a column `value`"),
        ({"value": ["v"]}, "", "set the option `topic`"),
        ({"value": ["v"], "colour": ["red"]}, "t", "column `colour` of type string has no place"),
        ({"value": ["v"], "partition": pa.array([0], pa.int64())}, "t", "must be an integer"),
        ({"value": ["v"], "headers": ["h"]}, "t", "must be array<struct<key: string"),
        ({"value": ["v"], "timestamp": ["now"]}, "t", "must be a timestamp"),
    ],
)
async def test_unknown_columns_are_refused(
    log: DirectLog, columns: dict[str, Any], topic: str, fault: str
) -> None:
    await make_topic(log)
    with pytest.raises(ConfigError, match=fault):
        await stage(log, pa.record_batch(columns), topic=topic)


async def test_text_and_headers_are_accepted(log: DirectLog) -> None:
    await make_topic(log, partitions=1)
    headers = pa.array(
        [[{"key": "h", "value": b"1"}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    await write(log, pa.record_batch({"key": ["ä", "b"], "value": ["ö", None], "headers": headers}))
    records = await read_partition(log, 0)
    assert [record[1:3] for record in records] == [("ä".encode(), "ö".encode()), (b"b", None)]


async def test_many_partitions_of_an_object_are_staged_in_parts(
    log: DirectLog, place: ClusterAddress
) -> None:
    await make_topic(log, partitions=4500)
    named = pa.array([number % 4500 for number in range(9000)], pa.int32())
    [told] = await stage(log, rows(9000, partition=named))
    assert told.runs == 4500
    assert log.state.sinks.staged[told.object_id].staged == 3
    done = await commit(log, BATCH, [told.object_id])
    assert done.records == 9000
    assert [record.value for record in await read_partition(log, 4499)] == [b"v4499", b"v8999"]
    assert not await faults(place)


async def test_large_batch_of_rows_is_split(log: DirectLog) -> None:
    await make_topic(log, partitions=1)
    told = await stage(log, rows(3000, value=[bytes(100)] * 3000), object_bytes=64 * 1024)
    assert len(told) > 4
    assert all(batch.size < 128 * 1024 for batch in told)
    assert sum(batch.rows for batch in told) == 3000


async def test_aborted_objects_are_condemned(log: DirectLog, place: ClusterAddress) -> None:
    await make_topic(log)
    staging = RowStager(log, BATCH, PackSettings(topic="t", object_bytes=64 * 1024))
    await staging.start()
    await staging.add(rows(20_000))
    objects = set(log.state.sinks.staged)
    await staging.abort()
    state = await log.barrier()
    assert not state.sinks.staged
    assert objects <= set(state.objects.condemned)
    assert not await faults(place)
    assert await abort(log, []) == []


async def test_a_committed_batch_is_not_written_again(log: DirectLog) -> None:
    await make_topic(log)
    await write(log, rows(10))
    before = await log.store.list("_rookery/objects/")
    staging = RowStager(log, BATCH, PackSettings(topic="t"))
    await staging.start()
    assert staging.is_repeated
    await staging.add(rows(10))
    assert await staging.finish() == []
    assert await log.store.list("_rookery/objects/") == before


@pytest.mark.parametrize(
    "settings",
    [
        {"compression": "brotli"},
        {"batch_bytes": 10},
        {"object_bytes": 10},
        {"uploads": 0},
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PackSettings(**settings)
