"""The reader against a model: any rows and any reads give the right batches in order."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.cluster.state.partition import Row
from rookery.log.settings import CacheSettings
from rookery.records import batches
from tests.log.stored import StoredWorld, batch


class Planned(NamedTuple):
    """A row to be: its kind, batches as (gap before, records, bytes), and the gap at its end."""

    kind: str
    some: list[tuple[int, int, int]]
    gap: int


BATCH = st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from([1, 50, 900]))
ROWS = st.lists(
    st.builds(
        Planned,
        st.sampled_from(["sent", "merged", "segment"]),
        st.lists(BATCH, min_size=1, max_size=6),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)
READS = st.lists(st.tuples(st.integers(0, 200), st.sampled_from([1, 300, 2000, 10**6])), max_size=8)


def build_world(rows: list[Planned]) -> tuple[StoredWorld, list[bytes]]:
    """Write the rows; return them with all batches as a client must get them."""
    world = StoredWorld(
        CacheSettings(max_bytes=20_000, stored_block_bytes=512, probation_percent=50)
    )
    world.partition.cleaned_to = 10**6
    every: list[bytes] = []
    for kind, some, gap in rows:
        base, made = world.partition.next_offset, []
        for before, count, size in some:
            base += 0 if kind == "sent" else before
            made.append(batch(base, count, size))
            base += count
        end = base if kind == "sent" else base + gap
        every += made
        if kind == "segment":
            world.segment(made, end, interval=3)
        elif kind == "merged":
            world.merged([made], [end])
        else:
            identity, first = world.new_id(), world.partition.next_offset
            data = b"".join(bytes(8) + record_batch[8:] for record_batch in made)
            world.store.objects[world.key(identity)] = data
            world.add_row(Row(first, end, identity, 0, len(data), 5, 0))
    return world, every


async def check(world: StoredWorld, every: list[bytes], offset: int, max_bytes: int) -> int:
    """Read once, and compare; return where to continue."""
    piece = await world.read(offset, max_bytes)
    served = b"".join(piece.parts)
    headers = batches.verify(served)
    left = [whole for whole in every if batches.parse(whole).last_offset >= offset]
    if not headers[0].record_count:
        # Nothing is there that was led over.
        assert not left or batches.parse(left[0]).base_offset >= piece.next_offset
    else:
        expected = b"".join(left[: len(headers)])
        assert served == expected
        assert len(served) <= max_bytes or len(headers) == 1
    assert piece.next_offset == headers[-1].last_offset + 1 > offset
    return piece.next_offset


@given(rows=ROWS, reads=READS)
@settings(max_examples=150, deadline=None)
def test_every_read_returns_the_expected_records(
    rows: list[Planned], reads: list[tuple[int, int]]
) -> None:
    async def scenario() -> None:
        world, every = build_world(rows)
        end = world.partition.next_offset
        for offset, max_bytes in reads:
            await check(world, every, offset % end, max_bytes)
        for max_bytes in (1, 700, 10**6):
            offset = 0
            while offset < end:
                offset = await check(world, every, offset, max_bytes)
        await world.cache.close()
        await world.layouts.close()

    asyncio.run(scenario())
