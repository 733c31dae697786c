"""Columns to batches: accepted values, sizes of batches, and refused rows."""

from importlib import import_module

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.records import batches as b
from rookery.records import columns
from rookery.records.columns import decode, encode
from rookery.records.compression import CODECS, GZIP, ZSTD
from rookery.records.reading import HEADERS, PartitionBatches, ReadSettings
from rookery.records.writing import WriteSettings

KERNELS = ["rookery.records._columns", "rookery.records.twins.columnstwin"]
MILLISECONDS = pa.timestamp("ms", tz="UTC")
SCHEMA = pa.schema(
    {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS, "timestamp": MILLISECONDS}
)
# A busy machine must not fail the test.
at_leisure = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
content = st.none() | st.binary(max_size=30)
header = st.fixed_dictionaries({"key": st.text(max_size=4), "value": content})
row = st.fixed_dictionaries(
    {
        "key": content,
        "value": content,
        "headers": st.lists(header, max_size=3),
        "timestamp": st.none() | st.integers(0, 2**62),
    }
)


@pytest.fixture(autouse=True, params=KERNELS, scope="module")
def kernel(request: pytest.FixtureRequest) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_columns", import_module(request.param))
        yield


def back(batches: list[bytearray], names: tuple[str, ...]) -> pa.Table:
    b.verify(b"".join(batches))
    reading = ReadSettings(names)
    return pa.Table.from_batches(
        decode([PartitionBatches("t", 0, b"".join(batches))], reading), reading.schema()
    )


def values(*items: bytes | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(items, pa.binary())})


class TestRoundTrip:
    @at_leisure
    @given(
        rows=st.lists(row, max_size=20),
        codec=st.sampled_from(list(CODECS.values())),
        size=st.integers(400, 5000),
    )
    def test_written_rows_are_read_back(
        self, rows: list[dict[str, object]], codec: object, size: int
    ) -> None:
        table = pa.Table.from_pylist(rows, SCHEMA)

        batches = list(encode(table, WriteSettings(codec, max_batch_bytes=size)))  # type: ignore[arg-type] # sampled from codecs

        assert back(batches, tuple(SCHEMA.names)).equals(table)
        assert all(len(batch) <= size for batch in batches)

    @at_leisure
    @given(rows=st.lists(row, min_size=1, max_size=20), start=st.integers(0, 19))
    def test_slices_are_written_without_their_hidden_rows(
        self, rows: list[dict[str, object]], start: int
    ) -> None:
        [whole] = pa.Table.from_pylist(rows, SCHEMA).to_batches()
        part = whole.slice(start, 7)

        table = pa.Table.from_batches([part], SCHEMA)
        assert back(list(encode(part)), tuple(SCHEMA.names)).equals(table)

    @pytest.mark.parametrize(
        "kind",
        [
            pa.string(),
            pa.large_string(),
            pa.large_binary(),
            pa.binary_view(),
            pa.string_view(),
            pa.dictionary(pa.int8(), pa.string()),
        ],
        ids=str,
    )
    def test_any_type_of_bytes_or_text_is_written(self, kind: pa.DataType) -> None:
        column = pa.array(["a", None, "", "ä" * 20]).cast(kind)

        table = back(list(encode(pa.record_batch({"value": column[1:]}))), ("value",))

        assert table.column(0).to_pylist() == [None, b"", "ä".encode() * 20]

    def test_header_lists_of_any_width_are_written(self) -> None:
        kind = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.string())]))
        column = pa.array([[("a", "1")], None, [("b", None)]], kind)

        table = back(
            list(encode(pa.record_batch({"key": ["k"] * 3, "headers": column}))), ("headers",)
        )

        assert table.column(0).to_pylist() == [
            [{"key": "a", "value": b"1"}],
            [],
            [{"key": "b", "value": None}],
        ]

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_timestamps_of_any_unit_are_written(self, unit: str) -> None:
        column = pa.array([5_000_000_000], pa.timestamp("ns")).cast(pa.timestamp(unit))

        table = back(
            list(encode(pa.record_batch({"key": [b""], "timestamp": column}))), ("timestamp",)
        )

        assert table.column(0).cast(pa.int64()).to_pylist() == [5000]

    def test_small_chunks_are_combined_into_one_batch(self) -> None:
        table = pa.Table.from_batches([values(b"a"), values(b"b"), values(b"c")])

        [batch] = encode(table)

        assert b.parse(batch).record_count == 3

    def test_empty_table_gives_no_batch(self) -> None:
        assert list(encode(values())) == []


class TestHeader:
    def test_header_has_the_requested_fields(self) -> None:
        writing = WriteSettings(
            ZSTD,
            base_offset=40,
            leader_epoch=3,
            producer_id=9,
            producer_epoch=2,
            base_sequence=100,
            transactional=True,
            timestamp_ms=77,
        )

        [batch] = encode(values(b"a" * 500, b"b" * 500), writing)

        written = b.verify(batch)[0]
        assert (written.base_offset, written.last_offset, written.record_count) == (40, 41, 2)
        assert (written.base_timestamp, written.max_timestamp) == (77, 77)
        assert (written.producer_id, written.producer_epoch, written.base_sequence) == (9, 2, 100)
        assert (written.codec, written.is_transactional) == (ZSTD, True)
        assert written.partition_leader_epoch == 3

    def test_offsets_continue_and_sequences_wrap_around(self) -> None:
        writing = WriteSettings(
            base_offset=5, base_sequence=2**31 - 2, producer_id=1, max_batch_bytes=100
        )
        table = pa.Table.from_batches([values(*[b"x" * 15] * 5)])

        headers = b.verify(b"".join(encode(table, writing)))

        assert [header.record_count for header in headers] == [1, 1, 1, 1, 1]
        assert [header.base_offset for header in headers] == [5, 6, 7, 8, 9]
        assert [header.base_sequence for header in headers] == [2**31 - 2, 2**31 - 1, 0, 1, 2]

    def test_incompressible_batch_is_stored_uncompressed(self) -> None:
        [batch] = encode(values(b"x"), WriteSettings(GZIP))

        assert b.parse(batch).codec.id == 0


class TestOffsets:
    def rows(self, *offsets: int | None) -> pa.RecordBatch:
        return pa.record_batch(
            {"value": [b"v"] * len(offsets), "offset": pa.array(offsets, pa.int64())}
        )

    def test_kept_offsets_preserve_gaps(self) -> None:
        offsets = [3, 4, 9, 2**31 + 2, 2**31 + 3, 2**40]

        batches = list(encode(self.rows(*offsets), WriteSettings(keep_offsets=True)))

        assert back(batches, ("offset",)).column(0).to_pylist() == offsets
        assert [header.base_offset for header in b.verify(b"".join(batches))] == [
            3,
            2**31 + 3,
            2**40,
        ]

    def test_offsets_are_assigned_unless_kept(self) -> None:
        assert back(list(encode(self.rows(5, 5))), ("offset",)).column(0).to_pylist() == [0, 1]

    @pytest.mark.parametrize("offsets", [(1, 1), (2, 1), (-1, 5), (-(2**63), 2**63 - 1)])
    def test_kept_offsets_must_ascend(self, offsets: tuple[int, ...]) -> None:
        with pytest.raises(ApiError, match="offsets must rise") as caught:
            list(encode(self.rows(*offsets), WriteSettings(keep_offsets=True)))

        assert caught.value.code is ErrorCode.INVALID_RECORD

    def test_kept_offsets_must_be_present(self) -> None:
        for rows in (values(b"x"), self.rows(1, None)):
            with pytest.raises(ConfigError, match="keep_offsets"):
                list(encode(rows, WriteSettings(keep_offsets=True)))


class TestRefusals:
    def test_row_larger_than_a_batch_is_named(self) -> None:
        written = encode(values(b"a", b"b" * 100), WriteSettings(max_batch_bytes=160))

        assert b.parse(next(written)).record_count == 1
        with pytest.raises(ApiError, match="row 1: its record of 109 bytes") as caught:
            next(written)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE

    def test_largest_possible_row_is_written(self) -> None:
        [batch] = encode(values(b"b" * 100), WriteSettings(max_batch_bytes=61 + 109))

        assert len(batch) == 61 + 109

    def test_larger_row_has_its_own_batch_up_to_a_bound(self) -> None:
        rows = values(b"a", b"b" * 100, b"c", b"d", b"e" * 101, b"f")
        written = encode(rows, WriteSettings(max_batch_bytes=160, max_record_bytes=61 + 109))

        assert [b.parse(next(written)).record_count for _ in range(3)] == [1, 1, 2]
        with pytest.raises(ApiError, match="row 4: its record of 110 bytes is above the 109"):
            next(written)

    @pytest.mark.parametrize("stamp", [-2, -(2**63), 2**62 + 1, 2**63 - 1])
    def test_impossible_timestamps_are_refused(self, stamp: int) -> None:
        times = pa.array([0, stamp], pa.int64())

        with pytest.raises(ApiError, match="row 1: its timestamp") as caught:
            list(encode(pa.record_batch({"key": [b"", b""], "timestamp": times})))
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP

    @pytest.mark.parametrize("pair", [None, (None, b"x")])
    def test_headers_without_a_key_are_refused(self, pair: object) -> None:
        headers = pa.array([[("a", b"b")], [pair]], HEADERS)

        with pytest.raises(ApiError, match="row 1: a header") as caught:
            list(encode(pa.record_batch({"key": [b"", b""], "headers": headers})))
        assert caught.value.code is ErrorCode.INVALID_RECORD

    def test_rows_that_are_not_records_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="key or a value"):
            list(encode(pa.record_batch({"topic": ["t"]})))

    def test_arrays_with_inconsistent_buffers_are_refused(self) -> None:
        ends = pa.py_buffer(bytes(4) + b"\xff\xff\xff\x7f" + b"\1\0\0\0")
        liar = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(b"x")])

        with pytest.raises(ConfigError, match="`value` of type binary cannot be written"):
            list(encode(pa.record_batch({"value": liar})))

    @pytest.mark.parametrize("name", ["key", "value", "headers", "timestamp", "offset"])
    def test_columns_of_the_wrong_type_are_refused(self, name: str) -> None:
        columns = {"key": pa.array([b"k"]), "offset": pa.array([1]), name: pa.array([["x"]])}

        with pytest.raises(ConfigError, match=f"`{name}` of type list"):
            list(encode(pa.record_batch(columns), WriteSettings(keep_offsets=True)))

    @pytest.mark.parametrize(
        "setting",
        [
            {"max_batch_bytes": 61},
            {"max_record_bytes": -1},
            {"base_offset": -1},
            {"timestamp_ms": -2},
        ],
    )
    def test_impossible_settings_are_refused(self, setting: dict[str, int]) -> None:
        with pytest.raises(ConfigError, match=next(iter(setting))):
            WriteSettings(**setting)  # type: ignore[arg-type] # all of them are ints
