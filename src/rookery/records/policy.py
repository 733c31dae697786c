"""Three policies for damage among stored batches, over one scan.

policy    result                            used by
serve     the batches before the damage     `log/read/opener`, for the broker's reader
rewrite   all batches, or the damage        `log/maintain/refine` (merge, compaction, direct reads),
                                            `log/check/survey`, `log/check/contents`, whole segments
                                            in `formats/segment`, snapshots and exports
                                            in `logdir`
examine   sound batches, and each damage    `log/check/segments`, `formats/examine`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rookery.records.expectation import Expectation, OffsetRule
from rookery.records.kernel import Buffer
from rookery.records.scan import BatchDamage, Scan, frame, scan, too_short


def serve(data: Buffer, expected: Expectation, offset: int) -> Scan:
    """Return the sound batches from the one that contains an offset on.

    Damage matters only if no requested batch precedes it: then there are no headers. Damage in a
    batch before the requested one does not hide it, provided that the offsets after it are certain.
    """
    scanned = first = scan(data, expected)
    later, by = expected, 0
    while scanned.damage is not None and scanned.next_offset <= offset:
        after = _lead_to(offset, scanned.damage, later, scanned.data)
        if after is None:
            return first._replace(headers=[])
        by += after.position - later.position
        later, scanned = after, scan(first.data[by:], after)
    scanned = scanned.since(offset)
    if later is expected:
        return scanned
    return (
        scanned.shift(first.data, by) if _is_certain(scanned, later) else first._replace(headers=[])
    )


def rewrite(data: Buffer, expected: Expectation) -> Scan:
    """Return all batches of the extents; if some are damaged or missing, the damage."""
    return _whole(scan(data, expected), expected)


def examine(data: Buffer, expected: Expectation, starts: Sequence[int] = ()) -> Iterator[Scan]:
    """Yield the sound batches: one scan for those before each damage, and one for the rest.

    Args:
        data: the bytes.
        expected: the log's expectations of them.
        starts: further positions at which batches begin, to resume from after damage.
    """
    view = memoryview(data)
    scanned = _whole(scan(view, expected), expected)
    yield scanned
    while scanned.damage is not None:
        later = _after(scanned.damage, expected, view, starts)
        if later is None:
            return
        by = later.position - expected.position
        scanned = _whole(scan(view[by:], later), later).shift(view, by)
        yield scanned


def _whole(scanned: Scan, expected: Expectation) -> Scan:
    """Report damage if the data ends before the extents do."""
    position = expected.position + scanned.end
    if scanned.damage is not None or position == expected.end:
        return scanned
    missing = expected.end - expected.position - len(scanned.data)
    return scanned._replace(damage=too_short(position, scanned.next_offset, missing))


def _after(
    damage: BatchDamage, expected: Expectation, view: memoryview, starts: Sequence[int] = ()
) -> Expectation | None:
    """Return the expectation after damage, at the next batch by length, or at the next start."""
    index = expected.extent_at(damage.position)
    extent = expected.extents[index]
    stop = extent.position + extent.size
    is_assigned = expected.rule is OffsetRule.ASSIGNED
    is_known = damage.end < stop and not expected.is_atomic
    if damage.end and is_known and frame(view, damage.end - expected.position):
        offset = damage.end_offset if is_assigned else damage.offset
        return expected.start_at(damage.end, offset, is_exact=is_assigned)
    if damage.end != stop:
        for start in starts:
            if damage.position < start < stop:
                return expected.start_at(start, damage.offset, is_exact=False)
    if stop >= min(expected.end, expected.position + len(view)):
        return None
    is_exact = expected.rule is not OffsetRule.SPARSE or expected.is_exact
    return expected.start_at(stop, expected.extents[index + 1].base_offset, is_exact=is_exact)


def _lead_to(
    offset: int, damage: BatchDamage, expected: Expectation, view: memoryview
) -> Expectation | None:
    """Return the expectation after damage if it contains an offset; skip whole sparse extents."""
    is_sparse = expected.rule is OffsetRule.SPARSE
    later = _after(damage._replace(end=0) if is_sparse else damage, expected, view)
    if later is None or expected.is_atomic:
        return None
    if later.position == later.extents[0].position:
        return later if offset >= later.base_offset else None
    if offset < damage.end_offset:
        return None
    return later._replace(base_offset=damage.end_offset, is_exact=True)


def _is_certain(rest: Scan, later: Expectation) -> bool:
    """Return whether the offsets after damage are right: they lead to the end of the extent."""
    if not rest.headers:
        return rest.damage is None
    extent = later.extents[0]
    stop = extent.position + extent.size
    if later.position == extent.position or later.position + rest.headers[0].position >= stop:
        return True
    is_sound = rest.damage is None or rest.damage.position >= stop
    return is_sound and later.position + rest.end >= stop
