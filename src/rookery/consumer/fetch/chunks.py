"""Cuts fetched bytes into chunks: visible batches of one partition, bounded in size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rookery.client.fetch import AbortedProducers
from rookery.consumer.order.block import Chunk
from rookery.consumer.output.arrow import fresh
from rookery.consumer.settings import ANY_ROWS
from rookery.model.partition import TopicPartition
from rookery.records.batches import CODEC_MASK, BatchHeader

# The assumed growth of compressed batches: decompressed, they stay in memory until their last row
# is returned.
_SWELL = 8


class ChunkRequest(NamedTuple):
    """What to keep of fetched batches."""

    place: TopicPartition
    begin: int
    """The first requested offset."""
    until: int
    """The end offset (exclusive)."""
    chunk_bytes: int
    """The approximate size of a chunk; a batch is never split."""
    chunk_rows: int = ANY_ROWS
    """The maximum number of rows of a chunk with more than one batch."""


def cut(
    data: memoryview,
    headers: Sequence[BatchHeader],
    aborted: Sequence[tuple[int, int]],
    wanted: ChunkRequest,
) -> Iterator[Chunk]:
    """Yield chunks in offset order, without markers and aborted batches.

    Chunks are copies, so that a chunk does not keep the whole response in memory.
    """
    some: list[BatchHeader] = []
    begin, end, size, rows = wanted.begin, wanted.begin, 0, 0
    for header in _visible(data, headers, aborted, wanted):
        weight = header.size * (_SWELL if header.attributes & CODEC_MASK else 1)
        size += weight
        rows += header.record_count
        if some and (size > wanted.chunk_bytes or rows > wanted.chunk_rows):
            yield _chunk(data, some, begin, end, wanted)
            some, begin, size, rows = [], end, weight, header.record_count
        some.append(header)
        end = header.last_offset + 1
    if some:
        yield _chunk(data, some, begin, end, wanted)


def _visible(
    data: memoryview,
    headers: Sequence[BatchHeader],
    aborted: Sequence[tuple[int, int]],
    wanted: ChunkRequest,
) -> Iterator[BatchHeader]:
    hidden = AbortedProducers(aborted) if aborted else None
    for header in headers:
        if header.is_control:
            if hidden is not None:
                hidden.on_control(header, data)
        elif (
            header.last_offset >= wanted.begin
            and header.base_offset < wanted.until
            and header.record_count
            and not (hidden is not None and hidden.has(header))
        ):
            yield header


def _chunk(
    data: memoryview, some: list[BatchHeader], begin: int, end: int, wanted: ChunkRequest
) -> Chunk:
    room, at = fresh(sum(header.size for header in some)).data, 0
    for begins, ends in _pieces(some):
        room[at : at + ends - begins] = data[begins:ends]
        at += ends - begins
    is_packed = any(header.attributes & CODEC_MASK for header in some)
    rows = sum(header.record_count for header in some)
    return Chunk(wanted.place, room, begin, end, wanted.until, rows, is_packed)


def _pieces(some: list[BatchHeader]) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of adjacent batches."""
    begins, ends = some[0].position, some[0].position
    for header in some:
        if header.position != ends:
            yield begins, ends
            begins = header.position
        ends = header.end
    yield begins, ends
