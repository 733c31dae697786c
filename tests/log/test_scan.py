"""Reader, rewriter and fsck see the same bytes: each finds the same damage in the same place."""

from __future__ import annotations

import re

import pytest

from rookery.cluster.state.partition import RowKind
from rookery.errors import Corrupt
from rookery.log.check.contents import RowError, check_row
from rookery.log.maintain.refine import RefinedRow, refine
from rookery.log.read.runs import batches_of, expect_body
from rookery.records.expectation import OffsetRule
from tests.log.stored import StoredWorld, batch

PLACE = re.compile(r"byte \d+, offset \d+: .*")


def place_in(error: Exception) -> str:
    """Return where damage is and what it is, without the name of the object."""
    match = PLACE.search(str(error))
    assert match is not None, error
    return match[0]


async def served(world: StoredWorld) -> list[str]:
    """Read all of a partition; return the damage that ends it."""
    world.forget()
    try:
        await world.bytes()
    except Corrupt as error:
        return [place_in(error)]
    return []


async def rewritten(world: StoredWorld) -> list[str]:
    row = world.partition.row(0)
    refined = RefinedRow(world.partition, row)
    await refine([refined], world.places.read)
    return [] if refined.error is None else [place_in(refined.error)]


def examined(world: StoredWorld, key: str) -> list[str]:
    row = world.partition.row(0)
    data = world.store.objects[key][row.position : row.position + row.size]
    try:
        check_row(world.partition, row, data)
    except RowError as error:
        return [place_in(error)]
    return []


@pytest.mark.parametrize("kind", [RowKind.FINAL, RowKind(0)])
async def test_every_flipped_byte_is_reported_alike_by_all_scanners(kind: RowKind) -> None:
    world = StoredWorld()
    some = [batch(base, 3, 10) for base in range(0, 9, 3)]
    key = world.key(world.merged([some], [9]))
    row = world.partition.row(0)._replace(kind=int(kind))
    world.partition.replace(range(1), [row])
    world.partition.next_offset = 9
    clean = world.store.objects[key]
    for at in range(row.position, row.position + row.size):
        world.flip(key, at)

        reports = [await served(world), await rewritten(world), examined(world, key)]

        byte = (at - row.position) % len(some[0])
        is_epoch, is_offset = 12 <= byte < 16, byte < 8
        if is_epoch:
            # The rewriter writes new epochs; so does all code that assigns offsets.
            assert not reports[1]
            assert bool(reports[0]) == bool(reports[2]) == bool(kind)
        elif is_offset and not kind:
            assert reports[0] == reports[1] == reports[2]
        else:
            assert reports[0] == reports[1] == reports[2] != [], at
        world.store.objects[key] = clean


async def test_truncated_object_is_damaged_after_its_whole_batches() -> None:
    world = StoredWorld()
    some = [batch(base, 3, 10) for base in range(0, 9, 3)]
    world.merged([some], [9])
    row = world.partition.row(0)
    data = b"".join(some)[:-1]

    async def read(position: int, size: int) -> bytes:
        begin = position - row.position
        return data[begin : begin + size]

    steps = [scan async for scan in batches_of(read, expect_body(row, OffsetRule.DENSE), 50)]

    assert [header.base_offset for step in steps for header in step.headers] == [0, 3]
    last = steps[-1].damage
    assert last is not None
    assert (last.offset, last.is_torn) == (6, True)
    assert "ends 1 bytes too soon" in last.reason
