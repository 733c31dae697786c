"""Fetched batches are cut into chunks by bytes and by rows, never within a batch."""

from __future__ import annotations

from rookery.consumer.fetch.chunks import ChunkRequest, cut
from rookery.consumer.fetch.shelf import ENDLESS
from rookery.consumer.settings import ANY_ROWS, StreamSettings
from rookery.model.partition import TopicPartition
from rookery.records.batches import parse, stamp_into
from rookery.testing.kafkalogs import NOON, pack_rows, rows

PLACE = TopicPartition("t", 0)


def chunk_rows(sizes: list[int], most_bytes: int, most_rows: int = ANY_ROWS) -> list[int]:
    """Return how many rows the chunks have that batches of these sizes are cut into."""
    data, offset = bytearray(), 0
    headers = []
    for size in sizes:
        batch = pack_rows(rows([NOON + n for n in range(size)]))
        stamp_into(batch, offset, 0)
        headers.append(parse(batch)._replace(position=len(data)))
        data += batch
        offset += size
    wanted = ChunkRequest(PLACE, 0, ENDLESS, most_bytes, most_rows)
    pieces = list(cut(memoryview(data), headers, [], wanted))
    assert [piece.begin for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    assert pieces[-1].end == offset
    return [piece.rows for piece in pieces]


def test_chunks_are_as_large_as_allowed() -> None:
    assert chunk_rows([10] * 6, 1 << 20) == [60]
    assert chunk_rows([10] * 6, 1 << 20, most_rows=25) == [20, 20, 20]
    assert chunk_rows([10, 40, 5, 5, 5], 1 << 20, most_rows=15) == [10, 40, 15]
    assert chunk_rows([10] * 3, 1) == [10, 10, 10]


def test_chunk_size_follows_the_row_limit() -> None:
    assert StreamSettings().chunk_rows(4) == ANY_ROWS
    assert StreamSettings(batch_rows=100, max_held_rows=500).chunk_rows(4) == 80
    assert StreamSettings(batch_rows=100, max_held_rows=101).chunk_rows(512) == 1
