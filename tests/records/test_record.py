"""Records in batches: build, read, inspect; control batches."""

from __future__ import annotations

import pytest

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.model.control import ControlRecordType
from rookery.records import batches
from rookery.records.compression import CODECS, GZIP, NONE, Codec
from rookery.records.recordcodec import (
    BatchContents,
    BatchSettings,
    Control,
    Record,
    build,
    build_control,
    build_marker,
    control,
    inspect,
    payload,
    read,
    read_all,
)

RECORDS = [
    Record(b"a", b"1", (("h", b"x"), ("h", None), ("ü", b"")), 1000),
    Record(None, b"2", (), 900),
    Record(b"c", None, (), 1200),
    Record(b"", b"", (("", b""),), 1200),
]
PLACED = [record._replace(offset=50 + n) for n, record in enumerate(RECORDS)]

each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)


def reread(data: bytes) -> list[Record]:
    (header,) = batches.verify(data)
    return list(read(data, header))


@each_codec
def test_built_batch_is_read_back(codec: Codec) -> None:
    data = build(RECORDS, BatchSettings(codec=codec, base_offset=50))
    (header,) = batches.verify(data)
    assert header.codec is codec
    assert list(read(data, header)) == PLACED


def test_the_header_follows_from_the_records() -> None:
    settings = BatchSettings(
        producer_id=7, producer_epoch=2, base_sequence=11, is_transactional=True
    )
    (header,) = batches.validate(build(RECORDS, settings))
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1200)
    assert (header.record_count, header.last_offset_delta) == (4, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 11)
    assert header.is_transactional


def test_gaps_are_kept_when_a_batch_is_rewritten() -> None:
    kept = [PLACED[1], PLACED[3]]
    data = build(kept, BatchSettings(base_offset=50))
    (header,) = batches.verify(data)
    assert (header.record_count, header.last_offset) == (2, 53)
    assert list(read(data, header)) == kept


def test_a_header_key_that_is_not_utf8_survives() -> None:
    strange = Record(b"k", b"v", ((b"\xff\xfe".decode("utf-8", "surrogateescape"), b"v"),), 1, 0)
    assert b"\xff\xfe" in build([strange])
    assert reread(build([strange])) == [strange]


def test_append_time_is_the_time_of_every_record() -> None:
    data = build(RECORDS)
    head, rest = batches.restamp(data, batches.parse(data).with_append_time(5000))
    assert {record.timestamp for record in reread(head + rest)} == {5000}


def test_empty_list_of_records_gives_no_batch() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        build([])


def test_an_empty_batch_of_a_compacted_log_has_no_records() -> None:
    header = batches.parse(build(RECORDS))._replace(record_count=0, attributes=GZIP.id)
    data = batches.seal(header, b"")
    assert reread(data) == []


@each_codec
def test_size_limit_is_enforced(codec: Codec) -> None:
    data = build([Record(None, bytes(100_000))], BatchSettings(codec=codec))
    (header,) = batches.verify(data)
    if codec is NONE:
        assert len(payload(data, header, 10)) > 100_000
        return
    with pytest.raises(ApiError, match=codec.name):
        read(data, header, 99_999)


def test_payload_of_a_plain_batch_is_a_view() -> None:
    data = build(RECORDS)
    body = payload(data, batches.parse(data))
    assert isinstance(body, memoryview)
    assert body.obj is data


def test_read_all_omits_markers_and_a_truncated_batch() -> None:
    marker = build_marker(
        ControlRecordType.COMMIT, 1, BatchSettings(producer_id=7, producer_epoch=0), 1
    )
    data = build(RECORDS[:2]) + marker + build(RECORDS[2:]) + build(RECORDS)[:-1]
    assert [record.key for record in read_all(data)] == [b"a", None, b"c", b""]


@each_codec
def test_inspect_returns_times_offsets_and_counts(codec: Codec) -> None:
    data = build(RECORDS, BatchSettings(codec=codec, base_offset=50))
    assert inspect(data, batches.parse(data)) == BatchContents(900, 1200, 52, 1)


def times_of(*times: int) -> BatchContents:
    data = build([Record(b"k", b"v", (), time) for time in times])
    return inspect(data, batches.parse(data))


@pytest.mark.parametrize("times", [(100,), (90, 120), (-1, -1), (-1, 100)])
def test_times_near_now_are_accepted(times: tuple[int, ...]) -> None:
    times_of(*times).check_times(now_ms=100, before_ms=10, after_ms=20)


@pytest.mark.parametrize("times", [(89, 100), (100, 121, 100), (-1, 50), (-2, 100)])
def test_times_too_far_from_now_are_refused(times: tuple[int, ...]) -> None:
    with pytest.raises(ApiError) as caught:
        times_of(*times).check_times(now_ms=100, before_ms=10, after_ms=20)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


@each_codec
def test_inspect_refuses_invalid_records_under_a_valid_checksum(codec: Codec) -> None:
    # The CRC is right, and the counts are; but the record inside is nonsense.
    body = codec.compress(bytes(40))
    header = batches.parse(build(RECORDS))._replace(attributes=codec.id)
    data = batches.seal(header, body) + body
    with pytest.raises(ApiError, match="record 0") as caught:
        inspect(data, batches.parse(data))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("outcome", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_a_marker_ends_a_transaction(outcome: ControlRecordType) -> None:
    settings = BatchSettings(
        base_offset=9, partition_leader_epoch=3, producer_id=7, producer_epoch=2, base_sequence=5
    )
    data = build_marker(outcome, 42, settings, 1000)
    (header,) = batches.verify(data)
    (record,) = read(data, header)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (record.offset, record.timestamp) == (9, 1000)
    assert control(record) == Control(outcome, 42)
    # As Kafka writes them: version 0 and type, then version 0 and coordinator epoch.
    assert record.key == bytes((0, 0, 0, outcome))
    assert record.value == bytes((0, 0, 0, 0, 0, 42))


def test_only_commit_and_abort_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE"):
        build_marker(ControlRecordType.LEADER_CHANGE, 1, BatchSettings(), 0)


def test_other_control_records_are_read_by_type() -> None:
    data = build_control(Record(b"\x00\x00\x00\x02", b"anything", (), 5), BatchSettings())
    (header,) = batches.verify(data)
    assert (header.is_control, header.is_transactional) == (True, False)
    assert [control(record) for record in read(data, header)] == [
        Control(ControlRecordType.LEADER_CHANGE, None)
    ]


def test_control_type_of_a_newer_kafka_is_a_number() -> None:
    assert control(Record(b"\x00\x00\x00\x63", b"")) == Control(99, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\x00\x00\x00", b""), (b"\x00\x00\x00\x01", None), (bytes(4), b"\x00\x00\x00")],
)
def test_a_broken_control_record_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(Corrupt, match="offset 3"):
        control(Record(key, value, (), 0, 3))
