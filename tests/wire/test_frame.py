"""The frame splitter: any chunks, sizes and invalid lengths."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import ProtocolError
from rookery.wire import frame
from rookery.wire.frame import CHUNK_BYTES, Chunks, Frame, FrameSplitter, renumber

LIMIT = 1_000_000

# Sizes of frames: the content follows from place and size, so that a failure can be printed.
sizes_of_frames = st.lists(st.one_of(st.integers(8, 40), st.integers(8, 200_000)), max_size=12)

# A busy machine must not fail the test.
unhurried = settings(deadline=None)


def payloads(sizes: list[int]) -> list[bytes]:
    return [bytes([number, size % 251]) * (size // 2) for number, size in enumerate(sizes)]


def prefixed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def pour(splitter: FrameSplitter, data: bytes, sizes: list[int]) -> list[Frame]:
    """Receive as a socket would: some bytes at a time, into what `buffer` hands out."""
    frames, at, turn = [], 0, 0
    while at < len(data):
        room = splitter.buffer()
        assert len(room) > 0
        count = min(len(room), sizes[turn % len(sizes)], len(data) - at)
        room[:count] = data[at : at + count]
        splitter.note_received(count)
        at, turn = at + count, turn + 1
        while (frame := splitter.take()) is not None:
            frames.append(frame)
    return frames


@unhurried
@given(sizes_of_frames, st.lists(st.integers(1, 2 * CHUNK_BYTES), min_size=1, max_size=5))
def test_any_chunking_gives_the_same_frames(sizes: list[int], cuts: list[int]) -> None:
    splitter, sent = FrameSplitter(LIMIT), payloads(sizes)
    frames = pour(splitter, b"".join(map(prefixed, sent)), cuts)
    # compared at the end: a frame must stay what it was while later ones arrive
    assert [bytes(frame) for frame in frames] == sent
    assert splitter.pending == 0


@unhurried
@given(st.lists(st.binary(min_size=8, max_size=300), max_size=8))
def test_frames_are_split_byte_by_byte(sent: list[bytes]) -> None:
    frames = pour(FrameSplitter(LIMIT), b"".join(map(prefixed, sent)), [1])
    assert [bytes(frame) for frame in frames] == sent


def test_large_frame_is_split_byte_by_byte() -> None:
    sent = bytes(range(256)) * 300
    frames = pour(FrameSplitter(LIMIT), prefixed(sent) + prefixed(b"12345678"), [1])
    assert [bytes(frame) for frame in frames] == [sent, b"12345678"]


@unhurried
@given(sizes_of_frames)
def test_feed_returns_whole_frames(sizes: list[int]) -> None:
    sent = payloads(sizes)
    frames = FrameSplitter(LIMIT).feed(b"".join(map(prefixed, sent)) + b"\0\0")
    assert [bytes(frame) for frame in frames] == sent


EDGES = [16_383, 16_384, 16_385, *range(CHUNK_BYTES - 5, CHUNK_BYTES + 2), 4 * CHUNK_BYTES, 999_999]


@pytest.mark.parametrize("size", EDGES)
@pytest.mark.parametrize("before", [0, 1, 40_000, CHUNK_BYTES - 16])
def test_frame_sizes_around_every_threshold_are_handled(size: int, before: int) -> None:
    sent = [bytes(8 + before), bytes([7]) * size, b"afterward"]
    frames = pour(FrameSplitter(LIMIT), b"".join(map(prefixed, sent)), [CHUNK_BYTES])
    assert [bytes(frame) for frame in frames] == sent


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 7, LIMIT + 1, 2**31 - 1])
def test_invalid_lengths_are_refused_before_memory_is_allocated(length: int) -> None:
    splitter = FrameSplitter(LIMIT)
    splitter.buffer()
    tracemalloc.start()
    with pytest.raises(ProtocolError, match=f"a frame of {length} bytes"):
        splitter.feed(struct.pack(">i", length))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024


def test_splitter_stays_broken_after_a_refusal() -> None:
    splitter = FrameSplitter(LIMIT)
    for _ in range(2):
        with pytest.raises(ProtocolError):
            splitter.feed(struct.pack(">i", -1))


def test_announced_length_allocates_nothing() -> None:
    tracemalloc.start()
    splitter = FrameSplitter(100 * 1024 * 1024)
    splitter.feed(struct.pack(">i", 100 * 1024 * 1024) + b"x")
    splitter.buffer()
    assert tracemalloc.get_traced_memory()[1] < 200 * 1024
    splitter.feed(bytes(1024 * 1024))
    splitter.buffer()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 1024 * 1024


def test_small_frames_do_not_keep_the_chunk() -> None:
    chunks = Chunks()
    splitter = FrameSplitter(LIMIT, chunks=chunks)
    tracemalloc.start()
    frames = []
    for number in range(1000):
        frames += splitter.feed(prefixed(b"%08d" % number))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < CHUNK_BYTES + 1000 * 400
    assert [bytes(frame) for frame in frames] == [b"%08d" % number for number in range(1000)]


def test_idle_splitters_share_one_chunk() -> None:
    chunks = Chunks()
    splitters = [FrameSplitter(LIMIT, chunks=chunks) for _ in range(100)]
    tracemalloc.start()
    for splitter in splitters:
        assert len(splitter.feed(prefixed(b"12345678"))) == 1
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 2 * CHUNK_BYTES


def test_kept_chunks_are_bounded() -> None:
    chunks = Chunks(kept=1)
    first, second = chunks.take(), chunks.take()
    chunks.give(first)
    chunks.give(second)
    assert chunks.take() is first
    assert chunks.take() is not second


def test_limit_can_change_between_frames_of_one_chunk() -> None:
    splitter = FrameSplitter(16)
    room = splitter.buffer()
    data = prefixed(b"x" * 16) + prefixed(b"y" * 17)
    room[: len(data)] = data
    splitter.note_received(len(data))
    assert bytes(splitter.take() or b"") == b"x" * 16
    with pytest.raises(ProtocolError, match="at most 16"):
        splitter.take()
    splitter.limit = 17
    assert bytes(splitter.take() or b"") == b"y" * 17


def test_minimum_can_be_lowered() -> None:
    splitter = FrameSplitter(16, minimum=0)
    assert [bytes(frame) for frame in splitter.feed(bytes(4) + prefixed(b"a"))] == [b"", b"a"]


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"GET / HTTP/1.1\r\n", "speaks HTTP"),
        (b"POST /x HTTP/1.1\r\n", "speaks HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", r"speaks TLS \(a hello\)"),
        (b"\x15\x03\x03\x00\x02\x02", r"speaks TLS \(an alert\)"),
    ],
)
def test_foreign_protocol_is_named(first: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        FrameSplitter(104_857_600).feed(first)


def test_pending_counts_unconsumed_bytes() -> None:
    splitter = FrameSplitter(LIMIT)
    splitter.feed(prefixed(b"12345678") + b"\0\0\0")
    assert splitter.pending == 3
    large = FrameSplitter(LIMIT)
    large.feed(struct.pack(">i", 500_000) + bytes(70_000))
    assert large.pending == 70_004


def test_renumbered_changes_only_the_id() -> None:
    (frame,) = FrameSplitter(LIMIT, minimum=4).feed(prefixed(struct.pack(">i", 7) + b"body"))
    assert b"".join(renumber(frame, 99)) == prefixed(struct.pack(">i", 99) + b"body")


def test_memory_of_large_frames_is_reused_only_when_unreferenced() -> None:
    chunks = Chunks()
    splitter = FrameSplitter(LIMIT, chunks=chunks)
    first_sent, second_sent, third_sent = (bytes([n]) * 300_000 for n in (1, 2, 3))
    first = pour(splitter, prefixed(first_sent), [50_000])[0]
    part = first[1000:2000]
    second = pour(splitter, prefixed(second_sent), [50_000])[0]
    assert bytes(first) == first_sent
    memory = id(second.obj)
    del second
    third = pour(splitter, prefixed(third_sent), [50_000])[0]
    assert id(third.obj) == memory
    del first
    pour(splitter, prefixed(second_sent), [50_000])
    assert bytes(part) == first_sent[1000:2000]
    assert bytes(third) == third_sent


def test_reusable_memory_of_large_frames_is_bounded() -> None:
    chunks = Chunks(large_bytes=1_000_000)
    for _ in range(5):
        chunks.give_large(bytearray(300_000))
    chunks.give_large(bytearray(1_000_001))
    assert [chunks.take_large(300_000) is not None for _ in range(4)] == [True, True, True, False]


def test_small_frame_does_not_reuse_much_larger_memory() -> None:
    chunks = Chunks()
    chunks.give_large(bytearray(1_000_000))
    assert chunks.take_large(20_000) is None
    assert chunks.take_large(900_000) is not None


def test_memory_is_not_reused_where_references_cannot_be_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame, "_CAN_COUNT", False)
    chunks = Chunks()
    chunks.give_large(bytearray(1_000_000))
    assert chunks.take_large(900_000) is None
