"""Batch headers: which batches are accepted from producers and logs, and stamping."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.records import batches, kernel
from rookery.records.batches import BatchHeader, TimestampType
from rookery.records.compression import CODECS, DEFAULT_LIMIT, GZIP, NONE, ZSTD, Codec
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.records.twins import kerneltwin
from tests.records.samples import batch

RECORDS = [Record(b"k", b"v" * 50, (), 1_700_000_000_000 + n) for n in range(3)]
PLAIN = build(RECORDS)
HEADER = batches.parse(PLAIN)
OWNED = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 9}
# Old messages: offset, size, CRC, magic, attributes, time (from magic 1 on), null key and value.
MAGIC_1 = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + b"\x01\x00" + bytes(8) + b"\xff" * 8
MAGIC_0 = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + b"\x00\x00" + b"\xff" * 8


def changed(**fields: int) -> bytes:
    """Make the sample with other header fields and the CRC that fits them."""
    head, rest = batches.restamp(PLAIN, HEADER._replace(**fields))
    return head + rest


def cut(**fields: int) -> bytes:
    return HEADER._replace(**fields).pack() + PLAIN[batches.HEADER_SIZE :]


BODY = PLAIN[batches.HEADER_SIZE :]
FIRST = len(BODY) // 3  # the three records are equally long


def around(body: bytes, **fields: int) -> bytes:
    """Make a batch of three records, as it says, around any bytes."""
    return batches.seal(HEADER._replace(**fields), body) + body


REFUSED = [
    ("nothing", b"", "INVALID_RECORD"),
    ("a few bytes", PLAIN[:11], "INVALID_RECORD"),
    ("half a batch", PLAIN[:100], "INVALID_RECORD"),
    ("a second batch cut off", PLAIN + PLAIN[:100], "INVALID_RECORD"),
    ("magic 0", MAGIC_0, "INVALID_RECORD"),
    ("magic 1", MAGIC_1, "INVALID_RECORD"),
    ("magic 3", cut(magic=3), "CORRUPT_MESSAGE"),
    ("magic -1", cut(magic=-1), "CORRUPT_MESSAGE"),
    ("length 48", cut(batch_length=48), "CORRUPT_MESSAGE"),
    ("length -1", cut(batch_length=-1), "CORRUPT_MESSAGE"),
    ("length 2**31-1", cut(batch_length=2**31 - 1), "INVALID_RECORD"),
    ("a flipped bit", PLAIN[:-1] + b"\x01", "CORRUPT_MESSAGE"),
    ("another CRC", cut(crc=HEADER.crc ^ 1), "CORRUPT_MESSAGE"),
    ("codec 5", changed(attributes=5), "UNSUPPORTED_COMPRESSION_TYPE"),
    ("codec 7", changed(attributes=7), "UNSUPPORTED_COMPRESSION_TYPE"),
    ("a control batch", changed(attributes=32, **OWNED), "INVALID_RECORD"),
    ("LogAppendTime", changed(attributes=8), "INVALID_TIMESTAMP"),
    ("base offset 1", changed(base_offset=1), "INVALID_RECORD"),
    ("no records", changed(record_count=0, last_offset_delta=-1), "INVALID_RECORD"),
    ("a negative count", changed(record_count=-1, last_offset_delta=-2), "INVALID_RECORD"),
    ("a gap", changed(last_offset_delta=3), "INVALID_RECORD"),
    ("a count too low", changed(record_count=2), "INVALID_RECORD"),
    (
        "more records than bytes",
        changed(record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        "INVALID_RECORD",
    ),
    ("producer id -2", changed(producer_id=-2), "INVALID_RECORD"),
    ("no sequence", changed(producer_id=5, producer_epoch=1), "INVALID_RECORD"),
    ("no epoch", changed(producer_id=5, base_sequence=1), "INVALID_RECORD"),
    ("a transaction without an id", changed(attributes=16), "INVALID_RECORD"),
    ("zeros for records", around(bytes(60)), "INVALID_RECORD"),
    ("the last record cut off", around(BODY[:-1]), "INVALID_RECORD"),
    ("bytes after the last record", around(BODY + b"\x00"), "INVALID_RECORD"),
    ("a record missing", around(BODY[:FIRST] + bytes(FIRST)), "INVALID_RECORD"),
    ("a length of 2**31-1", around(b"\xfe\xff\xff\xff\x0f" + BODY[1:]), "INVALID_RECORD"),
    ("a key longer than its record", around(BODY[:4] + b"\x7e" + BODY[5:]), "INVALID_RECORD"),
    ("headers that are not there", around(BODY[: FIRST - 1] * 3), "INVALID_RECORD"),
    ("an offset twice", around(BODY[:FIRST] * 3), "INVALID_RECORD"),
    ("gzip that is none", around(BODY, attributes=1), "INVALID_RECORD"),
    ("snappy that is none", around(b"\xff" * 60, attributes=2), "INVALID_RECORD"),
    ("snappy too short for three", around(b"\x14" + bytes(60), attributes=2), "INVALID_RECORD"),
    ("lz4 that is none", around(BODY, attributes=3), "INVALID_RECORD"),
    ("zstd that is none", around(BODY, attributes=4), "INVALID_RECORD"),
    ("a codec and nothing to open", around(b"", attributes=2), "INVALID_RECORD"),
]


@pytest.mark.parametrize(("data", "code"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_invalid_produce_batch_is_refused_with_the_code_of_kafka(data: bytes, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        batches.validate(data)
    assert caught.value.code.name == code


ACCEPTED = [
    ("plain", PLAIN),
    ("several", PLAIN + changed(**OWNED) + PLAIN),
    ("idempotent", changed(**OWNED)),
    ("transactional", changed(attributes=16, **OWNED)),
    ("marks in spare bits", changed(attributes=0x7F80)),
    ("all spare bits", changed(attributes=0xFF80 - 0x10000)),
    ("a max timestamp that is wrong", changed(max_timestamp=0)),
    ("no timestamps", changed(base_timestamp=-1, max_timestamp=-1)),
    ("times before 1970", changed(base_timestamp=-(10**12), max_timestamp=-(10**9))),
    ("any leader epoch", changed(partition_leader_epoch=77)),
]


@pytest.mark.parametrize("data", [a[1] for a in ACCEPTED], ids=[a[0] for a in ACCEPTED])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_valid_produce_batch_is_accepted(data: bytes, kind: type) -> None:
    headers = batches.validate(kind(data))
    assert [header.position for header in headers] == list(range(0, len(data), len(PLAIN)))
    assert headers[-1].end == len(data)
    assert batches.verify(data) == headers


STORED = [
    ("nothing", b""),
    ("a control batch", changed(attributes=32, **OWNED)),
    ("LogAppendTime", changed(attributes=8)),
    ("an offset", changed(base_offset=2**40)),
    ("the last offset", changed(base_offset=2**63 - 3)),
    ("what compaction leaves", changed(record_count=2, last_offset_delta=1000)),
    ("an empty batch", changed(record_count=0, last_offset_delta=1000)),
]


@pytest.mark.parametrize("data", [s[1] for s in STORED], ids=[s[0] for s in STORED])
def test_log_can_hold_batches_that_a_producer_cannot_send(data: bytes) -> None:
    assert [header.position for header in batches.verify(data)] == ([0] if data else [])


DAMAGED = [
    ("half a batch", PLAIN[:100], "not all there"),
    ("a flipped bit", PLAIN[:-1] + b"\x01", "CRC-32C"),
    (
        "a second one with a flipped bit",
        PLAIN + PLAIN[:-1] + b"\x01",
        f"byte {len(PLAIN)}: its CRC",
    ),
    ("magic 3", cut(magic=3), "magic"),
    ("length 0", cut(batch_length=0), "length"),
    ("more records than offsets", changed(record_count=3, last_offset_delta=1), "count"),
    ("a negative delta", changed(record_count=0, last_offset_delta=-1), "count"),
    ("a negative offset", changed(base_offset=-1), "offsets"),
    ("an offset too high", changed(base_offset=2**63 - 2), "offsets"),
]


@pytest.mark.parametrize(("data", "text"), [d[1:] for d in DAMAGED], ids=[d[0] for d in DAMAGED])
def test_damaged_log_batch_is_corrupt(data: bytes, text: str) -> None:
    with pytest.raises(Corrupt, match=text):
        batches.verify(data)


@pytest.mark.parametrize(("data", "magic"), [(MAGIC_0, 0), (MAGIC_1, 1)])
def test_old_formats_in_a_log_are_refused(data: bytes, magic: int) -> None:
    for read in (batches.verify, batches.check_fetched, batches.parse):
        with pytest.raises(ApiError, match=f"magic {magic}") as caught:
            read(data)
        assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("end", range(len(PLAIN) + 1))
def test_fetch_can_end_inside_a_batch(end: int) -> None:
    headers = batches.check_fetched(PLAIN + PLAIN[:end])
    assert len(headers) == (2 if end == len(PLAIN) else 1)


def test_damaged_fetch_is_refused() -> None:
    with pytest.raises(Corrupt, match="CRC"):
        batches.check_fetched(PLAIN[:-1] + b"\x01" + PLAIN[:30])


def test_split_returns_views_of_whole_batches() -> None:
    data = PLAIN + changed(base_offset=3) + PLAIN[:70]
    parts = list(batches.split(data))
    assert [(header.base_offset, bytes(view)) for header, view in parts] == [
        (0, PLAIN),
        (3, changed(base_offset=3)),
    ]


def test_parse_reads_a_header_at_any_position() -> None:
    data = b"xyz" + changed(base_offset=7)
    header = batches.parse(data, 3)
    assert (header.position, header.base_offset, header.end) == (3, 7, len(data))


@pytest.mark.parametrize("end", [0, 10, 60, 61, len(PLAIN) - 1])
def test_parse_refuses_an_incomplete_batch(end: int) -> None:
    with pytest.raises(Corrupt, match="batch at byte 0"):
        batches.parse(PLAIN[:end])


PROPERTIES: list[tuple[int, str, object]] = [
    (0, "is_transactional", False),
    (16, "is_transactional", True),
    (32, "is_control", True),
    (64, "has_delete_horizon", True),
    (8, "timestamp_type", TimestampType.LOG_APPEND_TIME),
    (0, "timestamp_type", TimestampType.CREATE_TIME),
    (1, "codec", GZIP),
    (4, "codec", ZSTD),
    (0x7F00, "codec", NONE),
]


@pytest.mark.parametrize(("attributes", "name", "value"), PROPERTIES)
def test_attribute_bits_are_decoded(attributes: int, name: str, value: object) -> None:
    assert getattr(HEADER._replace(attributes=attributes), name) == value


def test_unknown_codec_is_refused_with_a_code() -> None:
    with pytest.raises(ApiError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        _ = HEADER._replace(attributes=6).codec


def test_offsets_sizes_and_sequences_are_computed() -> None:
    header = HEADER._replace(base_offset=10, last_offset_delta=4, base_sequence=2**31 - 2)
    assert header.last_offset == 14
    assert header.last_sequence == 2
    assert HEADER.last_sequence == -1
    assert header.size == header.end == len(PLAIN)
    assert not HEADER.has_producer_id
    assert HEADER._replace(producer_id=0).has_producer_id


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_stamp_copies_no_payload_and_keeps_the_crc_valid(kind: type) -> None:
    head, rest = batches.stamp(kind(PLAIN), 1234, 56)
    (header,) = batches.verify(head + rest)
    assert len(head) == 16
    assert (header.base_offset, header.partition_leader_epoch, header.crc) == (1234, 56, HEADER.crc)


def test_batch_is_stamped_in_place() -> None:
    data = bytearray(PLAIN + PLAIN)
    batches.stamp_into(data, 1234, 56, len(PLAIN))
    first, second = batches.verify(data)
    assert (first.base_offset, second.base_offset, second.partition_leader_epoch) == (0, 1234, 56)


FIELDS = {
    "base_offset": st.integers(0, 2**60),
    "partition_leader_epoch": st.integers(-1, 2**31 - 1),
    "attributes": st.integers(0, 4),
    "base_timestamp": st.integers(-1, 2**60),
    "max_timestamp": st.integers(-1, 2**60),
    "producer_id": st.integers(-1, 2**60),
    "producer_epoch": st.integers(-1, 2**15 - 1),
    "base_sequence": st.integers(-1, 2**31 - 1),
}


@given(st.integers(0, 2**32), st.fixed_dictionaries({}, optional=FIELDS))
def test_restamp_recomputes_the_crc(seed: int, fields: dict[str, Any]) -> None:
    data = b"junk" + batch(random.Random(seed)) + b"more"
    header = batches.parse(data, 4)
    wanted = header._replace(**fields)

    head, rest = batches.restamp(data, wanted)

    (restamped,) = batches.verify(head + rest)
    assert restamped._replace(crc=0, position=0) == wanted._replace(crc=0, position=0)
    assert rest == data[4 + batches.HEADER_SIZE : -4]
    in_place = bytearray(data)
    batches.restamp_into(in_place, wanted)
    assert in_place == b"junk" + head + rest + b"more"


@pytest.mark.parametrize("threshold", [0, 2**40], ids=["patched", "computed"])
@pytest.mark.parametrize("module", [kernel, kerneltwin])
@pytest.mark.parametrize("size", [1, 5000, 300_000])
def test_restamp_keeps_the_crc_valid_with_and_without_patching(
    monkeypatch: pytest.MonkeyPatch, threshold: int, module: Any, size: int
) -> None:
    monkeypatch.setattr(kernel, "PATCH_FROM_BYTES", threshold)
    monkeypatch.setattr("rookery.records.crc.shift", module.shift)
    data = build([Record(None, b"x" * size)])
    head, rest = batches.restamp(data, batches.parse(data)._replace(producer_id=2**50))
    assert batches.verify(head + rest)[0].producer_id == 2**50


@pytest.mark.parametrize("threshold", [0, 2**40], ids=["patched", "computed"])
def test_restamp_never_hides_damage(monkeypatch: pytest.MonkeyPatch, threshold: int) -> None:
    monkeypatch.setattr(kernel, "PATCH_FROM_BYTES", threshold)
    damaged = bytearray(PLAIN)
    damaged[-3] ^= 4
    head, rest = batches.restamp(damaged, HEADER._replace(producer_id=9, base_sequence=1))
    with pytest.raises(Corrupt, match="CRC"):
        batches.verify(head + rest)


def test_append_time_applies_to_the_whole_batch() -> None:
    head, rest = batches.restamp(PLAIN, HEADER.with_append_time(1_800_000_000_000))
    (header,) = batches.verify(head + rest)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == 1_800_000_000_000


def test_packed_header_equals_the_wire_format() -> None:
    data = build(RECORDS, BatchSettings(producer_id=5, base_offset=3, partition_leader_epoch=4))
    assert BatchHeader.pack(batches.parse(data)) == data[: batches.HEADER_SIZE]


CODED = [codec for codec in CODECS.values() if codec.id]


def claiming(data: bytes, records: int) -> bytes:
    """Let a batch claim another number of records."""
    header = batches.parse(data)._replace(record_count=records, last_offset_delta=records - 1)
    return batches.seal(header, data[61:]) + data[61:]


@pytest.mark.parametrize("codec", CODED, ids=[codec.name for codec in CODED])
@pytest.mark.parametrize("size", [1, 1_000, 500_000])
def test_record_count_above_the_possible_maximum_is_refused(codec: Codec, size: int) -> None:
    value = random.Random(size).randbytes(size)
    data = build([Record(None, value)], BatchSettings(codec=codec))
    most = min((len(data) - 61) * codec.expansion, DEFAULT_LIMIT) // 7

    assert batches.validate(claiming(data, most))[0].record_count == most
    for records in (most + 1, 2**31 - 1):
        with pytest.raises(ApiError, match="record count") as caught:
            batches.validate(claiming(data, records))
        assert caught.value.code.name == "INVALID_RECORD"


@pytest.mark.parametrize("codec", CODED, ids=[codec.name for codec in CODED])
def test_maximum_number_of_smallest_records_is_accepted(codec: Codec) -> None:
    # Equal records without key and value pack as well as records can.
    records = 2_000_000
    body = codec.compress(b"\x0c\x00\x00\x00\x01\x01\x00" * records)
    header = HEADER._replace(
        attributes=codec.id, record_count=records, last_offset_delta=records - 1
    )

    assert batches.validate(batches.seal(header, body) + body)[0].record_count == records
