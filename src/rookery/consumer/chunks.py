"""Fetched bytes to chunks: visible batches of one partition in pieces of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rookery.client.fetch import Aborted
from rookery.consumer.block import Chunk
from rookery.model.partition import TopicPartition
from rookery.records.batch import CODEC_MASK, BatchHeader


class Cutting(NamedTuple):
    """What is wanted of fetched batches."""

    place: TopicPartition
    begin: int
    """The first offset wanted."""
    until: int
    """The offset before which rows are wanted."""
    chunk_bytes: int
    """About how large a chunk shall be; one batch is never cut."""


def cut(
    data: memoryview,
    headers: Sequence[BatchHeader],
    aborted: Sequence[tuple[int, int]],
    wanted: Cutting,
) -> Iterator[Chunk]:
    """Yield chunks in the order of offsets; markers and aborted batches are in none.

    They are copies: a chunk shall not keep all that came with it in memory.
    """
    some: list[BatchHeader] = []
    begin, end, size = wanted.begin, wanted.begin, 0
    for header in _visible(data, headers, aborted, wanted):
        if some and size + header.size > wanted.chunk_bytes:
            yield _chunk(data, some, begin, end, wanted)
            some, begin, size = [], end, 0
        some.append(header)
        size += header.size
        end = header.last_offset + 1
    if some:
        yield _chunk(data, some, begin, end, wanted)


def _visible(
    data: memoryview,
    headers: Sequence[BatchHeader],
    aborted: Sequence[tuple[int, int]],
    wanted: Cutting,
) -> Iterator[BatchHeader]:
    hidden = Aborted(aborted) if aborted else None
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
    data: memoryview, some: list[BatchHeader], begin: int, end: int, wanted: Cutting
) -> Chunk:
    first, last = some[0], some[-1]
    if last.end - first.position == sum(header.size for header in some):
        taken = bytes(data[first.position : last.end])
    else:
        taken = b"".join([data[header.position : header.end] for header in some])
    is_packed = any(header.attributes & CODEC_MASK for header in some)
    rows = sum(header.record_count for header in some)
    return Chunk(wanted.place, taken, begin, end, wanted.until, rows, is_packed)
