"""The kernel and its twin give the same results and the same errors."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import islice
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.records import _kernel, batches, kernel
from rookery.records.batches import BatchHeader
from rookery.records.recordcodec import Record
from rookery.records.twins import kerneltwin
from tests.records.samples import (
    RULES,
    cases,
    check_many,
    check_reading,
    check_records,
    outcome,
)

BLOBS = st.none() | st.binary(max_size=80)
NAMES = st.text(st.characters(codec="utf-8"), max_size=10)
RECORDS = st.builds(
    Record,
    BLOBS,
    BLOBS,
    st.lists(st.tuples(NAMES, BLOBS), max_size=3).map(tuple),
    st.integers(-1, 2**62),
    st.just(-1),
)
HEADER = BatchHeader(0, 0, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)


@pytest.mark.parametrize("seed", range(4))
def test_kernel_and_twin_agree_on_generated_cases(seed: int) -> None:
    assert check_many(6_000, 1000 * seed) == 6_000


@given(st.lists(RECORDS, max_size=5), st.integers(0, 2**62))
def test_written_records_are_read_back(records: list[Record], base: int) -> None:
    body, count, delta, first, highest = _kernel.encode(records, base)

    assert (body, count, delta, first, highest) == kerneltwin.encode(records, base)
    header = HEADER._replace(
        base_offset=base, last_offset_delta=delta, base_timestamp=first, record_count=count
    )
    placed = [record._replace(offset=base + index) for index, record in enumerate(records)]
    assert list(_kernel.decode(body, header, Record)) == placed
    assert list(kerneltwin.decode(body, header, Record)) == placed


@given(st.binary(max_size=200), st.sampled_from(RULES))
def test_kernel_and_twin_agree_on_any_bytes(data: bytes, rules: int) -> None:
    check_reading(data, rules)


@given(st.binary(max_size=60), st.integers(-3, 8), st.integers(-1, 8))
def test_kernel_and_twin_agree_on_any_records(body: bytes, count: int, delta: int) -> None:
    header = HEADER._replace(record_count=count, last_offset_delta=delta)
    check_records(bytes(batches.HEADER_SIZE) + body, header._replace(batch_length=49 + len(body)))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1))
def test_kernel_and_twin_agree_on_shifts(crc: int, length: int) -> None:
    assert _kernel.shift(crc, length) == kerneltwin.shift(crc, length)


@pytest.mark.parametrize(("crc", "length"), [(-1, 0), (2**32, 0), (0, -1), (0, 2**63)])
def test_kernel_and_twin_agree_on_invalid_shifts(crc: int, length: int) -> None:
    compiled, twin = (
        outcome(lambda: _kernel.shift(crc, length)),
        outcome(lambda: kerneltwin.shift(crc, length)),
    )
    assert compiled == twin
    assert compiled[0] == "OverflowError"


BAD_RECORDS = [
    pytest.param((b"", b"", ()), "TypeError", id="too few fields"),
    pytest.param([b"", b"", (), 0, -1], "TypeError", id="a list"),
    pytest.param((b"", b"", (), "0", -1), "TypeError", id="a text as timestamp"),
    pytest.param((b"", b"", (), 0, 1.5), "TypeError", id="a fraction as offset"),
    pytest.param(("key", b"", (), 0, -1), "TypeError", id="a text as key"),
    pytest.param((b"", 1, (), 0, -1), "TypeError", id="a number as value"),
    pytest.param((b"", b"", ((b"h", b""),), 0, -1), "TypeError", id="bytes as a header's key"),
    pytest.param((b"", b"", (("h", "x"),), 0, -1), "TypeError", id="a text as a header's value"),
    pytest.param((b"", b"", (), 2**63, -1), "OverflowError", id="too late"),
    pytest.param((b"", b"", (), 0, 2**63), "OverflowError", id="too far"),
    pytest.param((b"", b"", (), 0, 2**31), "ValueError", id="too far from the base"),
    pytest.param((b"", b"", (), 0, -2), "ValueError", id="before the base"),
    pytest.param((b"", b"", (), -(2**63), -1), "ValueError", id="too early after the first"),
]


@pytest.mark.parametrize(("record", "error"), BAD_RECORDS)
def test_kernel_and_twin_agree_on_unwritable_records(record: Record, error: str) -> None:
    records = [Record(b"", b"", (), 1), record]
    compiled, twin = (
        outcome(lambda: _kernel.encode(records, 0)),
        outcome(lambda: kerneltwin.encode(records, 0)),
    )
    assert compiled == twin
    assert compiled[0] == error


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_type_is_read(kind: type) -> None:
    data = next(cases(7))
    for module in (_kernel, kerneltwin):
        assert module.scan(kind(data), RULES[2]) == _kernel.scan(data, RULES[2])


HEADER_FAULTS = {
    *("", "incomplete", "length", "magic", "magic 0", "magic 1", "crc", "codec", "count"),
    *("control", "append time", "base offset", "offset"),
    *("producer", "sequence", "transaction", "records", "packed"),
}
RECORD_FAULTS = {
    "a varint is cut off or too long",
    "its length does not fit into the batch",
    "its key or value does not fit into it",
    "its number of headers does not fit into it",
    "a header does not fit into it",
    "a header has no key",
    "bytes are left over at its end",
    "its offset is out of order",
    "its timestamp is out of range",
    "bytes are left over after the last record",
}


def faults_of(data: bytes, rules: int) -> Iterator[str]:
    rows, fault, _ = kernel.scan(data, rules)
    yield fault
    for row in rows:
        header = BatchHeader._make(row)
        body = data[header.position + batches.HEADER_SIZE : header.end]
        try:
            kernel.walk(body, header)
        except Corrupt as error:
            yield str(error).split(": ")[-1]


def test_generated_cases_cover_every_fault() -> None:
    met: set[str] = set()
    for index, data in enumerate(islice(cases(3), 30_000)):
        met.update(faults_of(data, RULES[index % len(RULES)]))
    assert met >= HEADER_FAULTS | RECORD_FAULTS


@pytest.mark.parametrize("module", [_kernel, kerneltwin])
def test_huge_record_count_allocates_nothing(module: ModuleType) -> None:
    header = HEADER._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    tracemalloc.start()
    with pytest.raises(Corrupt, match="cannot be in 70 bytes"):
        list(module.decode(bytes(70), header, Record))
    with pytest.raises(Corrupt, match="cannot be in 70 bytes"):
        module.walk(bytes(70), header)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_huge_header_count_allocates_nothing() -> None:
    # One record whose header count says 2**31 - 1.
    body = b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f"
    with pytest.raises(Corrupt, match="record 0: its number of headers"):
        list(kernel.decode(body, HEADER, Record))


def test_failed_reader_is_exhausted() -> None:
    reader = kernel.decode(bytes(7), HEADER, Record)
    with pytest.raises(Corrupt):
        next(reader)
    assert list(reader) == []


def test_buffer_is_released_after_its_last_record() -> None:
    body = bytearray(_kernel.encode([Record(b"k", b"v")], 0)[0])
    assert len(list(kernel.decode(body, HEADER, Record))) == 1
    body.clear()
