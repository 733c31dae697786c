"""Batches to columns: what is read, left out, split and refused; compiled and in Python."""

import doctest
import struct
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pyarrow as pa
import pytest

from rookery.errors import ApiError, ConfigError, Corrupt, Error, ErrorCode
from rookery.records import batches as b
from rookery.records import columns
from rookery.records.columns import decode, encode
from rookery.records.compression import CODECS, GZIP
from rookery.records.reading import COLUMNS, END, FAULTS, HEADERS, PartitionBatches, ReadSettings
from rookery.records.writing import WriteSettings

KERNELS = ["rookery.records._columns", "rookery.records.twins.columnstwin"]
RECORD = bytes.fromhex("0c 00 00 00 01 01 00")  # no key, no value, no headers
HEADER = b.BatchHeader(500, 0, 7, 2, 0, 0, 0, 1000, 2000, -1, -1, -1, 1)


@pytest.fixture(autouse=True, params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = import_module(request.param)
    monkeypatch.setattr(columns, "_columns", module)
    return module


def test_the_compiled_kernel_is_the_one_in_use_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    in_use = vars(columns)["_columns"]
    assert in_use.__name__ == "rookery.records._columns"
    assert in_use.__file__.endswith(".so")


def sealed(records: bytes = RECORD, **fields: int) -> bytes:
    header = HEADER._replace(**fields)
    return b.seal(header, records) + records


def read(
    data: bytes | bytearray,
    reading: ReadSettings | None = None,
    from_offset: int = 0,
    until_offset: int = END,
) -> pa.Table:
    chosen = reading or ReadSettings()
    batches = list(decode([PartitionBatches("orders", 3, data, from_offset, until_offset)], chosen))
    for rows in batches:
        rows.validate(full=True)
    return pa.Table.from_batches(batches, chosen.schema())


def rows_of(count: int, **more: object) -> pa.RecordBatch:
    values = [b"value-%d" % i for i in range(count)]
    return pa.record_batch({"key": [b"k%d" % i for i in range(count)], "value": values, **more})


def abort_marker(kind: int) -> bytes:
    body = b"\0\0\0" + b"\x08" + struct.pack(">hh", 0, kind) + b"\x0c" + bytes(6) + b"\0"
    return bytes([2 * len(body)]) + body


class TestColumns:
    def test_null_and_empty_are_distinguished(self) -> None:
        headers = pa.array([[("h", b""), ("", None)], [], []], HEADERS)
        rows = pa.record_batch(
            {"key": [None, b"", b"k"], "value": [b"v", None, b""], "headers": headers}
        )

        back = read(b"".join(encode(rows)), ReadSettings(("key", "value", "headers")))

        assert back.to_pylist() == rows.to_pylist()

    def test_types_are_those_of_the_schema(self) -> None:
        table = read(sealed())

        assert table.schema.names == list(COLUMNS)
        assert [str(kind) for kind in table.schema.types] == [
            "dictionary<values=string, indices=int32, ordered=0>",
            "int32",
            "int64",
            "timestamp[ms, tz=UTC]",
            "int8",
            "binary",
            "binary",
            "list<item: struct<key: string, value: binary>>",
            "int32",
        ]

    def test_columns_are_in_the_requested_order(self) -> None:
        table = read(sealed(), ReadSettings(("leader_epoch", "offset", "partition", "topic")))

        assert table.to_pylist() == [
            {"leader_epoch": 7, "offset": 500, "partition": 3, "topic": "orders"}
        ]

    @pytest.mark.parametrize("name", COLUMNS)
    def test_each_column_alone_equals_that_among_all(self, name: str) -> None:
        data = b"".join(encode(rows_of(9), WriteSettings(max_batch_bytes=150, timestamp_ms=5)))

        assert read(data, ReadSettings((name,))).column(0).equals(read(data).column(name))

    @pytest.mark.parametrize(
        ("attributes", "stamp", "kind"), [(0, 1000, 0), (b.LOG_APPEND_TIME, 2000, 1)]
    )
    def test_timestamps_follow_the_timestamp_type(
        self, attributes: int, stamp: int, kind: int
    ) -> None:
        table = read(sealed(attributes=attributes), ReadSettings(("timestamp", "timestamp_type")))

        assert table.column(0).cast(pa.int64()).to_pylist() == [stamp]
        assert table.column(1).to_pylist() == [kind]

    def test_missing_timestamp_is_null(self) -> None:
        assert read(sealed(base_timestamp=-1)).column("timestamp").to_pylist() == [None]

    def test_topics_share_one_dictionary(self) -> None:
        data = b"".join(encode(rows_of(2)))
        sources = [PartitionBatches(topic, n, data) for n, topic in enumerate("aba")]

        [rows] = decode(sources, ReadSettings(("topic", "partition", "offset")))

        topics = rows.column("topic")
        assert isinstance(topics, pa.DictionaryArray)
        assert topics.dictionary_decode().to_pylist() == ["a", "a", "b", "b", "a", "a"]
        assert topics.dictionary.to_pylist() == ["a", "b"]
        assert rows.column("partition").to_pylist() == [0, 0, 1, 1, 2, 2]
        assert rows.column("offset").to_pylist() == [0, 1] * 3

    def test_views_share_the_fetched_bytes(self) -> None:
        rows = pa.record_batch({"key": [b"k" * 12, None, b""], "value": [b"v" * 13, b"x", None]})
        data = b"".join(encode(rows))

        [back] = decode(
            [PartitionBatches("orders", 0, data)], ReadSettings(("key", "value"), views=True)
        )

        assert back.schema.types == [pa.binary_view()] * 2
        assert back.to_pylist() == rows.to_pylist()

    @pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
    @pytest.mark.parametrize("views", [False, True])
    def test_many_batches_of_every_codec_are_decoded(self, codec: object, views: bool) -> None:
        assert codec in CODECS.values()
        rows = rows_of(300)
        writing = WriteSettings(codec, max_batch_bytes=1000)  # type: ignore[arg-type] # checked above
        data = b"".join(encode(rows, writing))

        back = read(data, ReadSettings(("key", "value"), views=views))

        assert back.to_pylist() == rows.to_pylist()

    def test_header_keys_that_are_not_utf8_are_read(self) -> None:
        record = bytes.fromhex("1a 00 00 00 01 01 04 02 6f 00 04 ff fe 01")

        [row] = read(sealed(record)).column("headers").to_pylist()

        assert row == [{"key": "o", "value": b""}, {"key": "\ufffd\ufffd", "value": None}]

    @pytest.mark.parametrize("views", [False, True])
    def test_memory_is_released(self, views: bool) -> None:
        headers = pa.array([[("h", b"x" * 50)] * 9] * 500, HEADERS)
        data = b"".join(encode(rows_of(500, headers=headers), WriteSettings(max_batch_bytes=9000)))
        sources = [
            PartitionBatches("t", 0, data),
            PartitionBatches("t", 1, data + sealed(b"\xff" * 9)),
        ]
        before = pa.total_allocated_bytes()

        with pytest.raises(Corrupt):
            [rows.num_rows for rows in decode(sources, ReadSettings(views=views, max_bytes=70_000))]

        assert pa.total_allocated_bytes() == before

    def test_empty_input_gives_no_rows(self) -> None:
        assert list(decode([])) == []
        assert list(decode([PartitionBatches("orders", 0, b"")])) == []

    def test_batch_emptied_by_compaction_gives_no_rows(self) -> None:
        assert read(sealed(b"", record_count=0, last_offset_delta=9)).num_rows == 0

    def test_example_in_the_docs_runs(self) -> None:
        assert doctest.testmod(columns).failed == 0


class TestRange:
    data = b"".join(encode(rows_of(10), WriteSettings(max_batch_bytes=150, base_offset=20)))

    @pytest.mark.parametrize("start", range(18, 32))
    @pytest.mark.parametrize("stop", [19, 20, 23, 30, 99])
    def test_only_offsets_in_range_are_returned(self, start: int, stop: int) -> None:
        offsets = read(self.data, from_offset=start, until_offset=stop).column("offset").to_pylist()

        assert offsets == [offset for offset in range(20, 30) if start <= offset < stop]

    def test_batch_after_the_range_is_not_read(self) -> None:
        damaged = self.data[:-1] + b"\xff"

        assert read(damaged, until_offset=25).num_rows == 5
        with pytest.raises(Corrupt):
            read(damaged)

    def test_batch_before_the_range_is_verified(self) -> None:
        first = b.parse(self.data).end
        damaged = self.data[: first - 1] + b"\xff" + self.data[first:]

        with pytest.raises(Corrupt, match="checksum"):
            read(damaged, from_offset=25)


class TestTransactions:
    @staticmethod
    def log() -> bytes:
        def data(offset: int, producer: int, attributes: int = b.TRANSACTIONAL) -> bytes:
            return sealed(base_offset=offset, producer_id=producer, attributes=attributes)

        def marker(offset: int, producer: int, kind: int) -> bytes:
            attributes = b.TRANSACTIONAL | b.CONTROL
            return sealed(
                abort_marker(kind), base_offset=offset, producer_id=producer, attributes=attributes
            )

        return b"".join(
            [
                data(0, 1),
                data(1, 2),
                data(2, 1, attributes=0),
                marker(3, 1, 0),
                data(4, 1),
                marker(5, 2, 1),
                marker(6, 1, 1),
                data(7, 2),
                marker(8, 2, 0),
                data(9, 2),
            ]
        )

    @staticmethod
    def offsets(
        aborted: list[tuple[int, int, int]], start: int = 0, *, log: bytes | None = None
    ) -> Iterator[int]:
        data = TestTransactions.log() if log is None else log
        for rows in decode(
            [PartitionBatches("t", 0, data, start, aborted=aborted)], ReadSettings(("offset",))
        ):
            yield from map(int, rows.column(0).to_numpy())

    def test_control_batches_are_omitted(self) -> None:
        assert list(self.offsets([])) == [0, 1, 2, 4, 7, 9]

    @pytest.mark.parametrize("start", range(10))
    def test_aborted_records_are_omitted_until_their_marker(self, start: int) -> None:
        offsets = list(self.offsets([(2, 7, END), (1, 0, END)], start))

        assert offsets == [offset for offset in (1, 2, 4, 9) if offset >= start]

    def test_known_end_replaces_a_missing_marker(self) -> None:
        batches = b.outline(self.log())
        without = b"".join(
            self.log()[batch.position : batch.end] for batch in batches if not batch.is_control
        )
        aborted = [(2, 7, 8), (1, 0, 3)]

        assert list(self.offsets(aborted, log=without)) == [1, 2, 4, 9]

        # Also where a piece begins after the whole transaction, or within it.
        for first in range(len(batches)):
            piece = self.log()[batches[first].position :]
            offsets = list(self.offsets(aborted, log=piece))
            assert offsets == [offset for offset in (1, 2, 4, 9) if offset >= first]

    def test_a_malformed_marker_is_refused(self) -> None:
        attributes = b.TRANSACTIONAL | b.CONTROL
        data = sealed(b"\x02\0\0", attributes=attributes, producer_id=1)
        source = PartitionBatches("t", 0, data, aborted=[(1, 0, END)])

        with pytest.raises(Corrupt, match="control record is malformed"):
            list(decode([source]))


class TestSplits:
    rows = rows_of(1000)

    @pytest.mark.parametrize("batch_bytes", [150, 5000, 1_000_000])
    @pytest.mark.parametrize("codec", [CODECS[0], GZIP])
    def test_rows_are_split_by_bytes(self, batch_bytes: int, codec: object) -> None:
        assert codec in CODECS.values()
        writing = WriteSettings(codec, max_batch_bytes=batch_bytes)  # type: ignore[arg-type] # checked
        data = b"".join(encode(self.rows, writing))

        parts = list(
            decode([PartitionBatches("t", 0, data)], ReadSettings(("key", "value"), max_bytes=100))
        )

        assert pa.Table.from_batches(parts).to_pylist() == self.rows.to_pylist()
        for part in parts:
            sizes = [len(row["key"]) + len(row["value"]) for row in part.to_pylist()]
            assert sum(sizes) <= 100

    @pytest.mark.parametrize("batch_bytes", [150, 5000, 1_000_000])
    def test_rows_are_split_by_count(self, batch_bytes: int) -> None:
        data = b"".join(encode(self.rows, WriteSettings(max_batch_bytes=batch_bytes)))

        parts = list(
            decode([PartitionBatches("t", 0, data)], ReadSettings(("offset",), max_rows=7))
        )

        assert [part.num_rows for part in parts] == [7] * 142 + [6]
        assert pa.Table.from_batches(parts).column(0).to_pylist() == list(range(1000))

    @pytest.mark.parametrize("views", [False, True])
    def test_views_stay_valid_across_parts(self, views: bool) -> None:
        rows = pa.record_batch({"value": [b"%040d" % i for i in range(500)]})
        batches = [
            bytes(batch)
            for codec in (CODECS[0], GZIP, CODECS[0])
            for batch in encode(rows, WriteSettings(codec, max_batch_bytes=700))
        ]
        sources = [
            PartitionBatches("t", 0, b"".join(batches[i : i + 3]))
            for i in range(0, len(batches), 3)
        ]

        parts = list(decode(sources, ReadSettings(("value",), views=views, max_bytes=999)))

        assert pa.Table.from_batches(parts).to_pylist() == rows.to_pylist() * 3

    def test_headers_count_towards_the_limit(self) -> None:
        headers = pa.array([[("a" * 40, b"b" * 40)]] * 5, HEADERS)
        data = b"".join(encode(rows_of(5, headers=headers)))

        parts = list(
            decode([PartitionBatches("t", 0, data)], ReadSettings(("headers",), max_bytes=160))
        )

        assert [part.num_rows for part in parts] == [2, 2, 1]

    @pytest.mark.parametrize("name", ["key", "value", "headers"])
    def test_single_record_above_the_limit_is_named(self, name: str) -> None:
        headers = pa.array([[("h" * 8, b"c" * 42)]], HEADERS)
        rows = pa.record_batch({"key": [b"k" * 50], "value": [b"v" * 50], "headers": headers})
        data = b"".join(encode(rows, WriteSettings(base_offset=77)))

        assert read(data, ReadSettings((name,), max_bytes=50)).num_rows == 1
        with pytest.raises(ConfigError, match=r"max_bytes=49.* orders-3, offset 77 needs 50"):
            read(data, ReadSettings((name,), max_bytes=49))


class TestFaults:
    @pytest.mark.parametrize(
        ("what", "data"),
        [
            (1, sealed()[:-1]),
            (1, sealed() + sealed()[:5]),
            (2, sealed()[:8] + struct.pack(">i", 48) + sealed()[12:]),
            (2, sealed()[:8] + struct.pack(">i", -(2**31)) + sealed()[12:]),
            (3, sealed(base_offset=-1)),
            (3, sealed(last_offset_delta=-1)),
            (3, sealed(base_offset=2**63 - 1, last_offset_delta=1)),
            (4, sealed(record_count=-1)),
            (4, sealed(record_count=2)),
            (4, sealed(record_count=2**31 - 1, last_offset_delta=2**31 - 1)),
            (5, sealed()[:-1] + b"\1"),
            (6, sealed()[:16] + b"\3" + sealed()[17:]),
            (8, sealed(RECORD + b"\0")),
            (8, sealed(RECORD, record_count=0)),
            (9, sealed(b"\x0e" + RECORD[1:])),
            (9, sealed(b"\x0b" + RECORD[1:])),
            (9, sealed(b"\x0a" + RECORD[1:])),
            (10, sealed(b"\xff\xff\xff\xff\x1f" + RECORD)),
            (10, sealed(b"\x0c\x00" + b"\xff" * 5)),
            (10, sealed(b"\x20\x00" + b"\xff" * 9 + b"\x02" + bytes(9))),
            (11, sealed(b"\x0c\x00\x00\x02" + RECORD[4:])),
            (11, sealed(b"\x0c\x00\x00\x01" + RECORD[4:])),
            (12, sealed(b"\x0c\x00\x02\x00" + RECORD[4:], base_timestamp=2**63 - 1)),
            (12, sealed(b"\x0c\x00\x01\x00" + RECORD[4:], base_timestamp=-(2**63))),
            (13, sealed(b"\x0c\x00\x00\x00\x06\x01\x00")),
            (13, sealed(b"\x0c\x00\x00\x00\x03\x01\x00")),
            (14, sealed(b"\x0c\x00\x00\x00\x01\x04\x00")),
            (14, sealed(b"\x0c\x00\x00\x00\x01\x03\x00")),
            (15, sealed(b"\x0c\x00\x00\x00\x01\x01\x02")),
            (15, sealed(b"\x0c\x00\x00\x00\x01\x01\x01")),
            (15, sealed(b"\x10\x00\x00\x00\x01\x01\x02\x01\x00")),
            (15, sealed(b"\x10\x00\x00\x00\x01\x01\x02\x00\x02")),
            (16, sealed(b"\x0e\x00\x00\x00\x01\x01\x00\x00")),
        ],
    )
    def test_each_fault_is_named_with_its_position(self, what: int, data: bytes) -> None:
        with pytest.raises(Corrupt) as caught:
            read(data)

        assert str(caught.value).startswith("orders-3, batch at offset ")
        assert str(caught.value).endswith(FAULTS[what])

    def test_rows_before_a_damaged_batch_are_returned(self) -> None:
        good = b"".join(encode(rows_of(5)))
        tables = decode(
            [
                PartitionBatches("t", 0, good),
                PartitionBatches("t", 1, good + sealed(base_offset=-1)),
            ]
        )

        assert next(tables).num_rows == 10
        with pytest.raises(Corrupt, match="t-1, batch at offset -1"):
            next(tables)

    def test_records_before_a_damaged_one_are_returned(self) -> None:
        records = RECORD + b"\x0c\0\0\2\1\1\0" + b"\x0c\0\0\4\1\6\0"
        tables = decode(
            [PartitionBatches("t", 0, sealed(records, record_count=3, last_offset_delta=2))]
        )

        assert next(tables).column("offset").to_pylist() == [500, 501]
        with pytest.raises(Corrupt, match="t-0, batch at offset 500: a record's value"):
            next(tables)

    def test_truncated_batch_is_omitted_if_allowed(self) -> None:
        data = b"".join(encode(rows_of(2), WriteSettings(max_batch_bytes=80)))
        whole = b.parse(data).end

        for end in range(whole, len(data)):
            assert read(data[:end], ReadSettings(allow_cut=True)).num_rows == 1
        for end in [*range(1, whole), *range(whole + 1, len(data))]:
            with pytest.raises(Corrupt, match="ends before the batch does"):
                read(data[:end])

    def test_every_flipped_bit_covered_by_the_checksum_is_found(self) -> None:
        data = sealed()
        for bit in range(21 * 8, len(data) * 8):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Error):
                read(damaged)

    def test_checksum_verification_can_be_switched_off(self) -> None:
        data = sealed()[:17] + b"oops" + sealed()[21:]

        assert read(data, ReadSettings(check_crc=False)).num_rows == 1

    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_formats_are_refused(self, magic: int) -> None:
        with pytest.raises(ApiError, match="orders-3, batch at offset 500") as caught:
            read(sealed()[:16] + bytes([magic]) + bytes(20))

        assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def test_unknown_codecs_are_refused(self) -> None:
        with pytest.raises(ApiError, match="orders-3, batch at offset 500: codec 5") as caught:
            read(sealed(attributes=5))

        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    @pytest.mark.parametrize("codec", [1, 2, 3, 4])
    def test_damaged_compression_names_the_batch(self, codec: int) -> None:
        with pytest.raises(Corrupt, match=f"orders-3, batch at offset 500: {CODECS[codec].name}"):
            read(sealed(b"\x99" * 50, attributes=codec))

    @pytest.mark.parametrize("codec", [1, 2, 3, 4])
    def test_bombs_are_stopped_and_named(self, codec: int) -> None:
        data = sealed(CODECS[codec].compress(bytes(1 << 20)), attributes=codec)

        with pytest.raises(ApiError, match="orders-3, batch at offset 500") as caught:
            read(data, ReadSettings(max_inflated_bytes=100_000))

        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE

    def test_stated_record_count_allocates_nothing(self) -> None:
        huge, packed = 2**31 - 1, GZIP.compress(RECORD)
        before = pa.default_memory_pool().bytes_allocated()
        peak = pa.default_memory_pool().max_memory()

        with pytest.raises(Corrupt, match="record count"):
            read(sealed(record_count=huge, last_offset_delta=huge))
        with pytest.raises(Corrupt, match="record count"):
            read(sealed(packed, attributes=1, record_count=huge, last_offset_delta=huge))

        # What other tests have left may be freed at any time.
        assert pa.default_memory_pool().bytes_allocated() <= before
        assert pa.default_memory_pool().max_memory() == peak

    def test_a_stated_header_count_allocates_nothing(self) -> None:
        peak = pa.default_memory_pool().max_memory() or 0
        record = b"\x16\x00\x00\x00\x01\x01" + b"\xfe\xff\xff\xff\x0f\x00"

        with pytest.raises(Corrupt, match="header"):
            read(sealed(record))

        assert (pa.default_memory_pool().max_memory() or 0) <= peak + 65_536


class TestSettings:
    @pytest.mark.parametrize("chosen", [(), ("nope",), ("key", "key")])
    def test_unknown_columns_are_refused(self, chosen: tuple[str, ...]) -> None:
        with pytest.raises(ConfigError, match="columns="):
            ReadSettings(chosen)

    @pytest.mark.parametrize("name", ["max_bytes", "max_rows", "max_inflated_bytes"])
    @pytest.mark.parametrize("value", [0, 2**31])
    def test_impossible_limits_are_refused(self, name: str, value: int) -> None:
        with pytest.raises(ConfigError, match=name):
            ReadSettings(**{name: value})  # type: ignore[arg-type] # one of the three ints
