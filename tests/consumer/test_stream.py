"""The rows and batches of a stream, on a real Kafka."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import rookery
from rookery.client.settings import ClientSettings
from rookery.consumer.faults import LateRow, MissingTimestamp, Misuse
from rookery.consumer.positions import Offsets
from rookery.errors import ApiError, ConfigError
from rookery.testing.kafkalogs import NOON, Logs, pack_rows, rows


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def filled(topics: Logs, stem: str, *partitions: list[int]) -> str:
    """Make a topic whose rows have these times, counted from noon."""
    topic = topics.create(stem, len(partitions))
    for number, times in enumerate(partitions):
        if times:
            topics.write(topic, number, rows([NOON + time for time in times]))
    return topic


def listed(table: pa.Table, name: str) -> list[Any]:
    return list(table[name].to_pylist())


def places(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(listed(table, "partition"), listed(table, "offset"), strict=True))


def times(table: pa.Table) -> list[int]:
    return [int(moment.timestamp() * 1000) - NOON for moment in listed(table, "timestamp")]


def test_rows_of_all_partitions_are_ordered_by_time(topics: Logs) -> None:
    topic = filled(topics, "order", [0, 30, 60], [10, 40, 70], [20, 50, 80], [])

    with rookery.read(topics.bootstrap, topic) as stream:
        table = stream.to_table()
        states = stream.partitions()

    assert times(table) == [0, 10, 20, 30, 40, 50, 60, 70, 80]
    assert table["topic"].to_pylist() == [topic] * 9
    assert set(states["state"].to_pylist()) == {"done"}
    assert states["released"].to_pylist() == [3, 3, 3, 0]
    assert states["buffered_bytes"].to_pylist() == [0, 0, 0, 0]


def test_the_topic_named_first_comes_first_among_equal_times(topics: Logs) -> None:
    first, second = filled(topics, "ties-b", [1, 2]), filled(topics, "ties-a", [1, 2])

    given = rookery.read(topics.bootstrap, [first, second]).to_table()["topic"].to_pylist()
    mapped = rookery.read(topics.bootstrap, {first: "earliest", second: "earliest"}).to_table()
    pattern = rookery.read(topics.bootstrap, re.compile(f"{first}|{second}")).to_table()

    assert given == [first, second, first, second]
    assert mapped["topic"].to_pylist() == [second, first, second, first]
    assert pattern["topic"].to_pylist() == [second, first, second, first]


def test_rows_out_of_time_order_keep_offset_order_and_are_flagged(topics: Logs) -> None:
    topic = filled(topics, "disorder", [5000, 1000, 3000, 2000, 4000], [1, 2, 6000])

    flagged = rookery.read(topics.bootstrap, topic).to_table()
    sorted_ = rookery.read(topics.bootstrap, topic, lateness=timedelta(seconds=5)).to_table()

    assert places(flagged) == [(1, 0), (1, 1), (0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 2)]
    late = [lateness // timedelta(milliseconds=1) for lateness in listed(flagged, "lateness")]
    assert late == [0, 0, 0, 4000, 2000, 3000, 1000, 0]
    assert times(sorted_) == [1, 2, 1000, 2000, 3000, 4000, 5000, 6000]
    assert not any(sorted_["lateness"].to_pylist())


def test_late_rows_can_be_dropped_put_aside_or_raised(topics: Logs) -> None:
    topic = filled(topics, "late", [5, 1, 6, 2, 7])

    dropped = rookery.read(topics.bootstrap, topic, late="drop").to_table()
    with rookery.read(topics.bootstrap, topic, late="side") as stream:
        batches = list(stream)
        counted = stream.partitions()["late"].to_pylist()
    raising = rookery.read(topics.bootstrap, topic, late="raise")
    before = next(raising)
    with pytest.raises(LateRow) as caught:
        next(raising)
    raising.close()

    assert times(dropped) == [5, 6, 7]
    assert "lateness" not in dropped.schema.names
    assert [time for batch in batches for time in times(pa.table(batch))] == [5, 6, 7]
    assert [time for batch in batches if batch.late for time in times(pa.table(batch.late))] == [
        1,
        2,
    ]
    assert counted == [2]
    assert before.num_rows == 1
    assert (caught.value.partition, caught.value.offset, caught.value.lateness_ms) == (0, 1, 4)


def test_rows_without_a_timestamp_follow_the_previous_row(topics: Logs) -> None:
    topic = topics.create("timeless", 2)
    for moment in (NOON + 5, -1, NOON + 7):
        topics.write(topic, 0, rows([moment]))
    topics.write(topic, 1, rows([NOON + 5, NOON + 6]))

    table = rookery.read(topics.bootstrap, topic).to_table()
    dropped = rookery.read(topics.bootstrap, topic, missing_timestamp="drop").to_table()
    raising = rookery.read(topics.bootstrap, topic, missing_timestamp="raise")
    next(raising)
    with pytest.raises(MissingTimestamp, match=r"-0, offset 1"):
        next(raising)
    raising.close()

    assert places(table) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
    assert table["timestamp"].null_count == 1
    assert places(dropped) == [(0, 0), (1, 0), (1, 1), (0, 2)]


def test_timestamp_far_in_the_future_does_not_make_later_rows_late(topics: Logs) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    days = {"message.timestamp.after.max.ms": str(100 * 86_400_000)}
    topic = topics.create("future", 1, config=days)
    topics.write(topic, 0, rows([now, now + 10 * 86_400_000, now + 1]), size=1)

    table = rookery.read(topics.bootstrap, topic).to_table()

    late = [lateness // timedelta(milliseconds=1) for lateness in listed(table, "lateness")]
    assert late[0] == late[2] == 0
    assert late[1] < 0


def test_nulls_empty_values_headers_and_types_are_kept(topics: Logs) -> None:
    topic = topics.create("kinds", 1)
    headers: list[list[tuple[str, bytes | None]]] = [[("a", b"1"), ("a", None), ("b", b"")], []]
    data: dict[str, pa.Array[Any]] = {
        "key": pa.array([None, b""], pa.binary()),
        "value": pa.array([b"", None], pa.binary()),
        "timestamp": pa.array([NOON, NOON], pa.timestamp("ms", "UTC")),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in header] for header in headers],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    topics.append(topic, {0: pack_rows(pa.record_batch(data))})
    columns = ("headers", "value", "key", "timestamp_type", "leader_epoch")

    table = rookery.read(topics.bootstrap, topic, columns=columns).to_table()

    assert table.schema.names == list(columns)
    assert table["key"].to_pylist() == [None, b""]
    assert table["value"].to_pylist() == [b"", None]
    assert table["headers"].to_pylist() == data["headers"].to_pylist()
    assert table["timestamp_type"].to_pylist() == [0, 0]
    assert table["leader_epoch"].to_pylist() == [0, 0]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_bytes_have_the_requested_type(topics: Logs, kind: pa.DataType) -> None:
    topic = topics.create("kinds", 1)
    values = [b"", None, b"short", b"one that does not fit into a view"]
    table = pa.record_batch({"value": pa.array(values, pa.binary())})
    topics.append(topic, {0: pack_rows(table)})

    with rookery.read(
        topics.bootstrap, topic, columns=("key", "value", "raw_value"), binary=str(kind)
    ) as stream:
        typed = stream.to_table()

    assert typed.schema.types == [kind, kind, kind]
    assert listed(typed, "value") == listed(typed, "raw_value") == values
    assert listed(typed, "key") == [None] * 4
    with pytest.raises(ConfigError, match="binary='bytes': choose from"):
        rookery.read(topics.bootstrap, topic, binary="bytes")


def test_append_time_is_set_by_the_broker(topics: Logs) -> None:
    topic = topics.create("append", 1, config={"message.timestamp.type": "LogAppendTime"})
    topics.append(topic, {0: pack_rows(rows([NOON, NOON + 1, NOON + 2]))})

    columns = ("timestamp", "timestamp_type")
    table = rookery.read(topics.bootstrap, topic, columns=columns).to_table()

    assert table["timestamp_type"].to_pylist() == [1, 1, 1]
    assert len(set(table["timestamp"].to_pylist())) == 1
    assert times(table)[0] > 86_400_000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(topics: Logs, codec: str) -> None:
    topic = topics.create(codec, 1)
    topics.append(topic, {0: pack_rows(rows([NOON + n for n in range(100)], b"value %d"), codec)})

    table = rookery.read(topics.bootstrap, topic).to_table()

    assert table["value"].to_pylist() == [b"value %d" % n for n in range(100)]


def test_read_starts_and_ends_at_the_given_bounds(topics: Logs) -> None:
    topic = filled(topics, "bounds", [0, 20, 40, 60], [10, 30, 50, 70])

    def read(**options: Any) -> list[int]:
        return times(rookery.read(topics.bootstrap, topic, **options).to_table())

    ago = datetime.now(UTC) - at(NOON + 30)
    assert read(start=at(NOON + 30)) == [30, 40, 50, 60, 70]
    assert read(end=at(NOON + 30)) == [0, 10, 20]
    assert read(start=at(NOON + 15), end=at(NOON + 45)) == [20, 30, 40]
    assert read(start=ago - timedelta(seconds=1)) in ([], [70])
    assert read(start=timedelta(days=10_000))[0] == 0
    assert read(start=Offsets({(topic, 0): 2, (topic, 1): 3})) == [40, 60, 70]
    assert read(end=Offsets({(topic, 0): 1})) == [0, 10, 30, 50, 70]
    assert read(start="latest") == read(start=at(NOON + 1000)) == []
    assert read(max_rows=3) == [0, 10, 20]
    # The row that reaches the limit is the last.
    assert read(max_bytes=3) == [0, 10]
    assert read(start={topic: Offsets({(topic, 0): 3, (topic, 1): 3})}) == [60, 70]


def test_rows_written_after_the_end_was_captured_are_not_read(topics: Logs) -> None:
    topic = filled(topics, "captured", [0, 1])

    with rookery.read(topics.bootstrap, topic) as stream:
        topics.write(topic, 0, rows([NOON + 2]))
        table = stream.to_table()

    assert times(table) == [0, 1]


def test_batches_are_as_large_as_allowed(topics: Logs) -> None:
    topic = filled(topics, "sizes", list(range(1000)))

    by_rows = list(rookery.read(topics.bootstrap, topic, batch_rows=300))
    by_bytes = list(rookery.read(topics.bootstrap, topic, batch_bytes=1000, columns=["value"]))

    assert [batch.num_rows for batch in by_rows] == [300, 300, 300, 100]
    assert all(batch.data.nbytes < 6000 for batch in by_bytes)
    assert sum(batch.num_rows for batch in by_bytes) == 1000


def test_batches_convert_to_forms_of_other_libraries(topics: Logs) -> None:
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    topic = filled(topics, "forms", [0, 2], [1, 3])

    def read() -> rookery.OrderedStream:
        return rookery.read(topics.bootstrap, topic)

    assert [len(table) for table in read().tables()] == [4]
    assert read().polars()["offset"].to_list() == [0, 0, 1, 1]
    assert read().pandas()["partition"].tolist() == [0, 1, 0, 1]
    assert polars.from_arrow(pa.RecordBatchReader.from_stream(read())).height == 4
    [[count]] = duckdb.from_arrow(read()).count("*").fetchall()
    assert count == 4
    batch = next(read())
    assert pa.record_batch(batch).num_rows == batch.num_rows == len(batch) == 4
    assert batch["offset"].to_pylist() == [0, 0, 1, 1]


async def test_a_stream_can_be_read_on_an_event_loop(topics: Logs) -> None:
    topic = filled(topics, "async", [0, 2], [1, 3])

    async with rookery.read(topics.bootstrap, topic, batch_rows=1) as stream:
        counts = [batch.num_rows async for batch in stream]

    assert counts == [1, 1, 1, 1]


def test_poll_returns_at_its_timeout(topics: Logs) -> None:
    topic = filled(topics, "poll", [0])

    with rookery.follow(topics.bootstrap, topic, start="earliest") as stream:
        first = stream.poll(60_000)
        assert stream.poll(10) is None
        assert not stream.is_finished
        assert stream.is_live

    assert first is not None
    assert first.num_rows == 1


def test_invalid_options_are_refused(topics: Logs) -> None:
    topic = filled(topics, "refused", [0])

    def read(**options: Any) -> None:
        rookery.read(topics.bootstrap, topic, **options).open()

    for options, text in (
        ({"start": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"start": "middle"}, "'middle'"),
        ({"start": "committed"}, "name the group"),
        ({"end": "committed"}, "end="),
        ({"memory": 0}, "memory"),
        ({"columns": ["colour"]}, "colour"),
        ({"late": "maybe"}, "late"),
        ({"event_time": "moon"}, "event_time"),
        ({"event_time": "value.t"}, "no field 't'"),
        ({"value": "json"}, "schema"),
        ({"colour": 1}, "colour: not known"),
        ({"lateness": timedelta(1), "order": "none"}, "lateness"),
    ):
        with pytest.raises(ConfigError, match=re.escape(text)):
            read(**options)
    with pytest.raises(ConfigError, match="named twice"):
        rookery.read(topics.bootstrap, [topic, topic])
    with pytest.raises(ConfigError, match="name one"):
        rookery.read(topics.bootstrap, [])
    hasty = ClientSettings(bootstrap=topics.bootstrap, unknown_topic_ms=300)
    with pytest.raises(ApiError, match="does not exist"):
        rookery.read(hasty, "no-such-topic").open()


def test_a_stream_has_one_reader_and_one_process(topics: Logs) -> None:
    topic = filled(topics, "misuse", [0])
    stream = rookery.read(topics.bootstrap, topic).open()

    with ThreadPoolExecutor(1) as other:
        other.submit(stream._lock.acquire).result()
        with pytest.raises(Misuse, match="one reader"):
            next(stream)
        other.submit(stream._lock.release).result()
    child = os.fork()
    if not child:
        try:
            next(stream)
        except Misuse:
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    stream.close()

    assert os.waitstatus_to_exitcode(status) == 7
    with pytest.raises(Misuse, match="closed"):
        next(stream)


def test_progress_reaches_the_end(topics: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    topic = filled(topics, "progress", list(range(100)), list(range(100)))

    with rookery.read(topics.bootstrap, topic, batch_rows=50, progress=True) as stream:
        seen = [stream.progress() for _ in stream]

    assert [progress.rows for progress in seen] == [50, 100, 150, 200]
    assert [progress.fraction for progress in seen] == [0.25, 0.5, 0.75, 1.0]
    assert seen[-1].frontier_ms == NOON + 99
    assert "100.0%" in capsys.readouterr().err


def test_partition_order_and_no_order_are_supported(topics: Logs) -> None:
    topic = filled(topics, "orders", [5, 6], [1, 2])

    one_by_one = rookery.read(topics.bootstrap, topic, order="partition").to_table()
    as_they_come = rookery.read(topics.bootstrap, topic, order="none").to_table()

    assert places(one_by_one) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert sorted(places(as_they_come)) == places(one_by_one)
