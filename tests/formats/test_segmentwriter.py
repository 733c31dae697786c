"""The segment writer: the bytes of its files, and its limits."""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.formats import segmentwriter
from rookery.formats.segment import MAX_MESSAGES, MAX_SEGMENT_BYTES, verify_segment
from rookery.formats.segmentwriter import FinishedSegment, SegmentWriter
from rookery.formats.times import SegmentAbort, SegmentEpoch, parse_times
from rookery.records import batches
from rookery.records.batches import BatchHeader, parse
from tests.formats import byhand, golden


def _finish(writer: SegmentWriter, last: int) -> FinishedSegment:
    return writer.finish(golden.ORIGIN, last, 1)


def test_writer_produces_the_golden_files() -> None:
    writer = SegmentWriter(1000, interval=3)
    for batch in golden.BATCHES:
        writer.add(batch)
    files = writer.finish(
        golden.ORIGIN,
        1012,
        1_767_225_600_000,
        aborted=[golden.ABORTED],
        epochs=golden.EPOCHS,
    )

    assert b"".join(files.parts) == golden.SEGMENT
    assert files.index == golden.INDEX
    assert files.times == golden.TIMES
    assert files.size == len(golden.SEGMENT)
    assert files.max_timestamp == 6002


@pytest.mark.parametrize("cut", [1, 16, 20, 21, 22, 60, 61, 70])
def test_batch_can_be_added_in_pieces(cut: int) -> None:
    batch = golden.BATCHES[0]
    whole, pieces = SegmentWriter(1000), SegmentWriter(1000)

    whole.add(batch)
    pieces.add(batch[:cut], b"", memoryview(batch)[cut:])

    assert b"".join(_finish(pieces, 1001).parts) == b"".join(_finish(whole, 1001).parts)


def test_stamped_batch_is_accepted_without_copying_its_payload() -> None:
    batch = byhand.batch(0, [b"x" * 10_000], 1)
    writer = SegmentWriter(5)

    writer.add(*batches.stamp(batch, 7, 3))
    files = _finish(writer, 9)

    assert any(isinstance(part, memoryview) and part.obj is batch for part in files.parts)
    (stamped,) = byhand.read_segment(b"".join(files.parts)).batches
    assert (stamped.base, stamped.epoch) == (7, 3)


def test_small_pieces_are_joined() -> None:
    writer = SegmentWriter(0)
    for offset in range(50):
        writer.add(byhand.batch(offset, [b"x"], 1))

    assert len(_finish(writer, 49).parts) == 3


def test_size_is_known_while_writing() -> None:
    writer = SegmentWriter(1000)
    assert writer.size == 48

    header = writer.add(golden.BATCHES[0])

    assert writer.size == 48 + len(golden.BATCHES[0])
    assert writer.next_offset == header.last_offset + 1 == 1002
    assert writer.messages == 2


def test_empty_segment_covers_its_offsets() -> None:
    files = _finish(SegmentWriter(5), 9)

    segment = verify_segment(b"".join(files.parts))
    assert (segment.header.message_count, segment.batches) == (0, [])
    assert byhand.read_index(files.index) == (100, [])
    assert parse_times(files.times).blocks == []
    assert files.max_timestamp == -1


def test_only_transactions_and_epochs_of_the_segment_are_kept() -> None:
    writer = SegmentWriter(100)
    writer.add(byhand.batch(100, [b"x"], 1))
    aborted = [
        SegmentAbort(1, 90, 200),
        SegmentAbort(2, 80, 99),
        SegmentAbort(3, 80, 100),
        SegmentAbort(4, 109, 300),
        SegmentAbort(5, 110, 300),
    ]
    epochs = [SegmentEpoch(n, start) for n, start in enumerate((0, 50, 100, 105, 110))]

    files = writer.finish(golden.ORIGIN, 109, 1, aborted=aborted, epochs=epochs)

    times = parse_times(files.times)
    assert [abort.producer_id for abort in times.aborted] == [3, 1, 4]
    assert [epoch.epoch for epoch in times.epochs] == [2, 3]


def test_epoch_at_the_start_of_a_segment_is_kept() -> None:
    files = SegmentWriter(100).finish(
        golden.ORIGIN, 109, 1, epochs=[SegmentEpoch(0, 0), SegmentEpoch(1, 50)]
    )

    assert parse_times(files.times).epochs == [SegmentEpoch(1, 50)]


@pytest.mark.parametrize("at", range(len(golden.BATCHES[0])))
def test_damaged_batch_is_refused(at: int) -> None:
    damaged = bytearray(golden.BATCHES[0])
    damaged[at] ^= 0x01
    writer = SegmentWriter(0)
    if at < 8 or 12 <= at < 16:
        # Offset and leader epoch are set by the writer, just before.
        assert writer.add(damaged) == parse(damaged)
    else:
        with pytest.raises(Corrupt):
            writer.add(damaged)


@pytest.mark.parametrize(
    "parts",
    [(), (b"",), (golden.BATCHES[0][:60],), (golden.BATCHES[0][:-1],), (golden.BATCHES[0], b"x"),
     (golden.BATCHES[0], golden.BATCHES[1])],
)  # fmt: skip
def test_anything_but_one_batch_is_refused(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(Corrupt):
        SegmentWriter(0).add(*parts)


def test_negative_counts_are_refused() -> None:
    batch = bytearray(byhand.batch(5, [b"x"], 1))
    batch[57:61] = struct.pack(">i", -1)
    batch[17:21] = struct.pack(">I", byhand.crc32c(batch[21:]))

    with pytest.raises(Corrupt, match="below 0"):
        SegmentWriter(0).add(batch)


def test_offsets_must_ascend() -> None:
    writer = SegmentWriter(1001)
    with pytest.raises(ValueError, match="offset 1000, where 1001 may come next"):
        writer.add(golden.BATCHES[0])
    writer = SegmentWriter(1000)
    writer.add(golden.BATCHES[0])
    with pytest.raises(ValueError, match="where 1002 may come next"):
        writer.add(golden.BATCHES[0])
    with pytest.raises(ValueError, match="last offset 1000 is before 1001"):
        _finish(writer, 1000)
    with pytest.raises(ValueError, match="last offset 4"):
        _finish(SegmentWriter(5), 4)
    with pytest.raises(ValueError, match="below 0"):
        SegmentWriter(-1)


def _sized(size: int, records: int) -> BatchHeader:
    return parse(golden.BATCHES[0])._replace(batch_length=size - 12, record_count=records)


def test_segment_size_and_counts_are_limited() -> None:
    writer = SegmentWriter(0)

    assert writer.has_room(_sized(MAX_SEGMENT_BYTES - 48, 1))
    assert not writer.has_room(_sized(MAX_SEGMENT_BYTES - 47, 1))
    writer.add(byhand.batch(0, [b"x"], 1))
    assert writer.has_room(_sized(100, MAX_MESSAGES - 1))
    assert not writer.has_room(_sized(100, MAX_MESSAGES))


def test_batch_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentwriter, "MAX_SEGMENT_BYTES", 200)
    writer = SegmentWriter(0)
    writer.add(byhand.batch(0, [b"x"], 1))

    with pytest.raises(ValueError, match="has no room"):
        writer.add(byhand.batch(1, [b"x" * 100], 1))


class _Sketch(NamedTuple):
    """A batch to be: offsets skipped before it, its values, offsets dropped at its end, time."""

    gap: int
    values: list[bytes]
    dropped: int
    time: int


SKETCHES = st.lists(
    st.builds(
        _Sketch, st.integers(0, 5), st.lists(st.binary(max_size=20), max_size=4),
        st.integers(0, 3), st.integers(-1, 10_000),
    ),
    max_size=8,
)  # fmt: skip


def _draw(base: int, sketches: list[_Sketch]) -> list[bytes]:
    drawn, offset = [], base
    for gap, values, dropped, time in sketches:
        width = max(len(values) + dropped, 1)
        drawn.append(byhand.batch(offset + gap, values, time, width=width))
        offset += gap + width
    return drawn


@given(st.integers(0, 1 << 40), SKETCHES, st.integers(0, 4), st.integers(1, 6))
def test_written_segment_is_read_by_an_independent_reader(
    base: int, sketches: list[_Sketch], beyond: int, interval: int
) -> None:
    drawn = _draw(base, sketches)
    writer = SegmentWriter(base, interval=interval, interval_bytes=300)
    for batch in drawn:
        writer.add(batch)
    last = max(writer.next_offset - 1, base) + beyond

    files = _finish(writer, last)

    data = b"".join(files.parts)
    read = byhand.read_segment(data)
    assert len(data) == files.size
    assert [batch.data for batch in read.batches] == drawn
    assert (read.base, read.last) == (base, last)
    assert read.messages == sum(len(sketch.values) for sketch in sketches)
    _, entries = byhand.read_index(files.index)
    bases = {batch.position: batch.base for batch in read.batches}
    assert all(bases[position] == offset for offset, position in entries)
    assert [position for _, position in entries[:1]] == [32] * bool(drawn)
    _assert_blocks(read, byhand.read_times(files.times)[3], data)


def _assert_blocks(read: byhand.ReadSegment, section: bytes, data: bytes) -> None:
    rows = [struct.unpack(">qiqI", section[at : at + 24]) for at in range(0, len(section), 24)]
    ends = [row[1] for row in rows[1:]] + [len(data) - 16]
    for (_, start, time, crc), end in zip(rows, ends, strict=False):
        inside = [batch for batch in read.batches if start <= batch.position < end]
        assert crc == byhand.crc32c(data[start:end])
        assert time == max(batch.max_time for batch in inside)


@given(SKETCHES)
def test_index_entries_respect_the_interval(sketches: list[_Sketch]) -> None:
    drawn = _draw(0, sketches)
    writer = SegmentWriter(0, interval=3)
    for batch in drawn:
        writer.add(batch)

    _, entries = byhand.read_index(_finish(writer, writer.next_offset).index)

    positions = {position for _, position in entries}
    since = 0
    for batch, position in zip(drawn, accumulate(map(len, drawn), initial=32), strict=False):
        since = 0 if position in positions else since
        assert since < 3
        since += parse(batch).record_count
