"""The compiled column kernel and its Python twin give the same results for any input."""

from dataclasses import replace
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.errors import Error
from rookery.records import batches as b
from rookery.records import columns
from rookery.records.columns import decode, encode
from rookery.records.compression import CODECS, Codec
from rookery.records.reading import COLUMNS, END, HEADERS, PartitionBatches, ReadSettings
from rookery.records.twins import columnstwin, manycolumns
from rookery.records.writing import WriteSettings

native = pytest.importorskip("rookery.records._columns")
Row = dict[str, object]
SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.large_binary(),
        "headers": HEADERS,
        "timestamp": pa.int64(),
        "offset": pa.int64(),
    }
)
content = st.none() | st.binary(max_size=20)
headers = st.lists(
    st.none() | st.fixed_dictionaries({"key": st.text(max_size=3), "value": content}), max_size=3
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": content,
            "value": content,
            "headers": st.none() | headers,
            "timestamp": st.none() | st.integers(-1, 2**62) | st.integers(-3, 3),
            "offset": st.integers(0, 2**33),
        }
    ),
    min_size=1,
    max_size=12,
)
readings = st.builds(
    ReadSettings,
    columns=st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True).map(tuple),
    views=st.booleans(),
    check_crc=st.sampled_from([False, False, True]),
    allow_cut=st.booleans(),
    max_bytes=st.integers(1, 200) | st.just(2**31 - 1),
    max_rows=st.integers(1, 20) | st.just(2**31 - 1),
    max_inflated_bytes=st.just(100_000),
)
# Numbers at their limits hurt more than random bytes.
edits = st.lists(
    st.tuples(
        st.integers(0, 2**16),
        st.sampled_from([b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\xff" * 9])
        | st.binary(min_size=1, max_size=2),
    ),
    max_size=4,
)
fetches = st.builds(
    PartitionBatches,
    topic=st.sampled_from(["a", "b"]),
    partition=st.integers(0, 3),
    data=st.just(b""),
    from_offset=st.just(0) | st.integers(0, 12),
    until_offset=st.just(2**63 - 1) | st.integers(0, 12),
    aborted=st.just(())
    | st.lists(
        st.tuples(st.integers(-1, 2), st.integers(0, 12), st.integers(0, 12) | st.just(END)),
        max_size=3,
    ),
)


def outcome(
    kernel: ModuleType, sources: list[PartitionBatches], reading: ReadSettings
) -> tuple[object, ...]:
    """Everything that comes out: the parts, then how it ended."""
    parts: list[pa.RecordBatch] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_columns", kernel)
        try:
            for part in decode(sources, reading):
                part.validate(full=True)
                parts.append(part)
        except Error as error:
            return (*parts, type(error), str(error))
    return (*parts, "all read")


def written(kernel: ModuleType, table: pa.Table, writing: WriteSettings) -> tuple[object, ...]:
    batches: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_columns", kernel)
        try:
            batches.extend(map(bytes, encode(table, writing)))
        except Error as error:
            return (*batches, type(error), str(error))
    return tuple(batches)


def is_same(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    if len(left) != len(right):
        return False
    for first, second in zip(left, right, strict=True):
        if isinstance(first, pa.RecordBatch) and isinstance(second, pa.RecordBatch):
            if not first.equals(second, check_metadata=True):
                return False
        elif first != second:
            return False
    return True


def batches_of(some: list[Row], codec: Codec, attributes: int, producer: int) -> bytes:
    """Batches of rows that can be written, marked as of a producer, a type, a control batch."""
    fit = [
        {**row, "headers": [h for h in row["headers"] or [] if h], "timestamp": None}  # type: ignore[attr-defined] # a list or None
        for row in some
    ]
    out = b""
    for batch in encode(
        pa.Table.from_pylist(fit, SCHEMA), WriteSettings(codec, max_batch_bytes=400)
    ):
        header = b.parse(batch)
        new = header._replace(attributes=header.attributes | attributes, producer_id=producer)
        body = batch[b.HEADER_SIZE :]
        out += b.seal(new, body) + body
    return out


def edited(data: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    out = bytearray(data)
    for place, change in changes:
        at = place % len(data)
        out[at : at + len(change)] = change
    return bytes(out[: len(data)])


sources = st.lists(
    st.tuples(
        fetches,
        rows,
        st.sampled_from(list(CODECS.values())) | st.just(CODECS[0]),
        st.sampled_from([0, 0, 0, 8, 16, 16, 48, 32]),
        st.integers(-1, 2),
        edits,
        st.sampled_from([0, 0, 0, 1, 5, 60, 70]),
    ),
    min_size=1,
    max_size=3,
)


@given(sources=sources, reading=readings)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_kernel_and_twin_read_alike(
    sources: list[
        tuple[PartitionBatches, list[Row], Codec, int, int, list[tuple[int, bytes]], int]
    ],
    reading: ReadSettings,
) -> None:
    given_to = []
    for fetched, some, codec, attributes, producer, changes, cut in sources:
        data = edited(batches_of(some, codec, attributes, producer), changes)
        data = data[: len(data) - cut]
        given_to.append(
            PartitionBatches(
                fetched.topic,
                fetched.partition,
                data,
                fetched.from_offset,
                fetched.until_offset,
                fetched.aborted,
            )
        )

    by_native = outcome(native, given_to, reading)

    assert is_same(by_native, outcome(columnstwin, given_to, reading)), by_native


@given(
    some=rows, place=st.integers(0, 2**20), change=st.binary(max_size=9), reading=readings,
    attributes=st.sampled_from([0, 8]),
)  # fmt: skip
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_kernel_and_twin_read_many_sources_alike(
    some: list[Row], place: int, change: bytes, reading: ReadSettings, attributes: int
) -> None:
    plain = [{**row, "headers": None} for row in some]
    data = bytearray(batches_of(plain, CODECS[0], attributes, -1))
    # A change within the records of the first batch: it is read at once, or found to be odd.
    if change and len(data) > b.HEADER_SIZE + len(change):
        at = b.HEADER_SIZE + place % (len(data) - b.HEADER_SIZE - len(change))
        data[at : at + len(change)] = change
    given_to = [PartitionBatches("t", 0, bytes(data))]
    reading = replace(reading, check_crc=False)

    by_native = outcome(native, given_to, reading)

    assert is_same(by_native, outcome(columnstwin, given_to, reading)), by_native


def test_overlong_varint_is_read_alike() -> None:
    [batch] = encode(pa.record_batch({"value": [b"abcdefgh"] * 3}))
    at = batch.index(b"\x10abcdefgh")
    for size in range(1, 9):
        # The length of the first value, padded; what follows is short by as many bytes.
        padded = bytes([0x10 - 2 * (size - 1) | 0x80, *[0x80] * (size - 2), 0])[:size]
        data = bytearray(batch)
        data[at : at + size] = padded if size > 1 else b"\x10"
        given_to = [PartitionBatches("t", 0, bytes(data))]
        reading = ReadSettings(check_crc=False)
        by_native = outcome(native, given_to, reading)
        assert is_same(by_native, outcome(columnstwin, given_to, reading)), (size, by_native)


@pytest.mark.parametrize(
    ("headers", "is_at_once"), [(None, True), ([{"key": "k", "value": b"v"}], False)]
)
def test_only_records_without_headers_are_read_in_bulk(headers: object, is_at_once: bool) -> None:
    rows = [{"key": b"k", "value": b"v", "headers": headers}] * 5
    [batch] = encode(pa.RecordBatch.from_pylist(rows, SCHEMA))
    bulk = manycolumns.read(bytes(batch[b.HEADER_SIZE :]), 5)
    assert (bulk is not None) == is_at_once


@given(
    some=rows,
    size=st.integers(62, 400),
    keep=st.booleans(),
    default=st.integers(-1, 5),
    start=st.integers(0, 3),
)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_kernel_and_twin_write_alike(
    some: list[Row], size: int, keep: bool, default: int, start: int
) -> None:
    table = pa.Table.from_pylist(some, SCHEMA).slice(start)
    writing = WriteSettings(max_batch_bytes=size, keep_offsets=keep, timestamp_ms=default)

    assert is_same(written(native, table, writing), written(columnstwin, table, writing))
