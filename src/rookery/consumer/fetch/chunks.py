"""Fetched bytes to chunks: visible batches of one partition in pieces of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rookery.client.fetch import AbortedProducers
from rookery.consumer.order.block import Chunk
from rookery.consumer.output.arrow import fresh
from rookery.consumer.settings import ANY_ROWS
from rookery.model.partition import TopicPartition
from rookery.records.batch import CODEC_MASK, BatchHeader

# What is compressed may take many times its size once it is opened, until its last row has gone.
_SWELL = 8


class ChunkRequest(NamedTuple):
    """What is wanted of fetched batches."""

    place: TopicPartition
    begin: int
    """The first offset wanted."""
    until: int
    """The offset before which rows are wanted."""
    chunk_bytes: int
    """About how large a chunk shall be; one batch is never cut."""
    chunk_rows: int = ANY_ROWS
    """The most rows of a chunk of more than one batch."""


def cut(
    data: memoryview,
    headers: Sequence[BatchHeader],
    aborted: Sequence[tuple[int, int]],
    wanted: ChunkRequest,
) -> Iterator[Chunk]:
    """Yield chunks in the order of offsets; markers and aborted batches are in none.

    They are copies: a chunk shall not keep all that came with it in memory.
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
    """Yield where batches lie that follow each other without a gap."""
    begins, ends = some[0].position, some[0].position
    for header in some:
        if header.position != ends:
            yield begins, ends
            begins = header.position
        ends = header.end
    yield begins, ends
