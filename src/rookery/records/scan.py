"""The one walk over stored batches: every batch is checked against what the log expects of it.

    bytes, Expectation ──► scan ──► headers of sound batches, then damage or a batch that is cut off

The CRC of a batch does not cover its first 16 bytes: offset, length and leader epoch. The scan
checks those against the expectation. `records/policy` decides what happens to damaged bytes.

`Scanner` takes bytes in pieces: `log/read/rangereader` and, for all code that reads in steps,
`log/read/runs`. `logdir/segment` scans windows of its own choice. A scan returns a list of headers
and no further object per batch, because all fetches and all Spark reads go through it.

Bytes from a broker have no expectation: `client/fetch` and `consumer/fetch/kafka` check them with
`records/batches` alone. Bytes that were scanned before are only outlined, by `records/batches` too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.errors import Corrupt, Error
from rookery.records import batches, kernel
from rookery.records.batches import OVERHEAD, BatchHeader
from rookery.records.crc import checksum
from rookery.records.expectation import Expectation, ExtentLike, OffsetRule
from rookery.records.kernel import Buffer

if TYPE_CHECKING:
    from rookery.records._kernel import RawHeader

_CUT: Final = "incomplete"
_BASE, _LENGTH, _EPOCH, _DELTA, _AT = 0, 1, 2, 6, 13  # indexes in a raw header
_new = tuple.__new__


class BatchDamage(NamedTuple):
    """The reason and the position of damage in stored bytes."""

    position: int
    """The position, in the object, of the first batch or extent that cannot be trusted."""
    offset: int
    """The first offset that is affected."""
    reason: str
    is_torn: bool = False
    """Whether the bytes only end too early, as after a crash."""
    end: int = 0
    """The position after the damaged batch by its own length; 0 if that cannot be read."""
    end_offset: int = 0
    """The offset after the damaged batch by its own count."""

    @property
    def text(self) -> str:
        """A description of the damage, without the name of the object."""
        return f"byte {self.position}, offset {self.offset}: {self.reason}"


def corrupt(damage: BatchDamage, name: str = "", object_id: int | None = None) -> Corrupt:
    """Return the error for damage, with the name of the file or object if given."""
    return Corrupt(damage.text, name=name, object_id=object_id)


def too_short(position: int, offset: int, missing: int) -> BatchDamage:
    """Return the damage of an object that ends too early."""
    return BatchDamage(position, offset, f"the object ends {missing} bytes too soon", is_torn=True)


class Scan(NamedTuple):
    """The sound batches of a byte range, and why there are no more."""

    data: memoryview
    """The bytes that the headers' positions refer to."""
    headers: list[BatchHeader]
    """With the offsets that the log assigns, even if the bytes have none."""
    end: int
    """The byte of the data after the last sound batch."""
    next_offset: int
    """The offset after the last sound batch."""
    damage: BatchDamage | None = None
    needed: int = 0
    """If the data ends within a batch: the bytes of that batch that the next scan needs."""

    @property
    def sound(self) -> memoryview:
        """The bytes of the sound batches."""
        return self.data[: self.end]

    @property
    def record_count(self) -> int:
        """The number of records in the sound batches."""
        return sum(header.record_count for header in self.headers)

    def since(self, offset: int) -> Scan:
        """Leave out the batches that end before an offset."""
        headers = self.headers
        if not headers or headers[0].last_offset >= offset:
            return self
        first = bisect_left(headers, offset, key=lambda header: header.last_offset)
        return self._replace(headers=headers[first:])

    def shift(self, data: memoryview, by: int) -> Scan:
        """Return the scan with positions in a buffer that ends with this scan's data."""
        headers = [header._replace(position=header.position + by) for header in self.headers]
        return self._replace(data=data, headers=headers, end=self.end + by)


def scan(data: Buffer, expected: Expectation) -> Scan:
    """Check batches up to the first damage, the end of the data or the end of the extents.

    Where the data ends within an extent, the rest of the extent is unknown and not damage.
    """
    view = memoryview(data)
    limit = expected.end - expected.position
    if len(view) > limit:
        view = view[:limit]
    covered = _count_intact(view, expected) if expected.crcs else len(view)
    rules = batches.HEADERS_ONLY if expected.is_covered else batches.STORED
    rows, fault, at = kernel.scan(view[:covered], rules)
    headers, offset, damage = _WALKS[expected.rule](rows, expected)
    needed = 0
    if damage is None and fault == _CUT:
        damage, needed = _cut_off(view, expected, at, offset)
    elif damage is None and fault:
        damage = _faulty(view, expected, at, offset, batches.reason(fault))
    elif damage is None and covered < len(view):
        damage = _describe_damage(expected, covered)
    if damage is not None and expected.is_atomic:
        headers, offset = _before_extent(headers, expected, damage)
    end = headers[-1].end if headers else 0
    return Scan(view, headers, end, offset, damage, needed)


class Scanner:
    """Scans one extent that arrives in pieces; a batch that is split is joined."""

    def __init__(self, expected: Expectation) -> None:
        """Start at the first byte of the expectation."""
        self.expected = expected
        """The expectation for the batches that were not scanned yet."""
        self._rest: list[memoryview] = []
        self._missing = 0  # bytes that the batch in `_rest` lacks

    def feed(self, data: Buffer) -> Iterator[Scan]:
        """Take the next bytes; yield complete batches. After damage, no more bytes may be fed."""
        view = memoryview(data)
        while self._rest and view:
            self._rest.append(view[: self._missing])
            self._missing -= len(self._rest[-1])
            if self._missing:
                return
            view = view[len(self._rest[-1]) :]
            joined, self._rest = memoryview(b"".join(self._rest)), []
            yield from self._scan(joined)
        if view:
            yield from self._scan(view)

    def _scan(self, view: memoryview) -> Iterator[Scan]:
        expected = self.expected
        scanned = scan(view, expected)
        if scanned.end:
            self.expected = expected._replace(
                position=expected.position + scanned.end,
                base_offset=scanned.next_offset,
                is_exact=expected.rule is not OffsetRule.SPARSE,
            )
        if scanned.needed:
            self._rest = [view[scanned.end :]]
            self._missing = scanned.needed - len(self._rest[0])
        if scanned.headers or scanned.damage is not None:
            yield scanned


class _Walk(NamedTuple):
    """The batches whose offsets are right, the offset after them, and the damage there."""

    headers: list[BatchHeader]
    next_offset: int
    damage: BatchDamage | None = None


def _assign(rows: list[RawHeader], expected: Expectation) -> _Walk:
    """Assign offsets to batches; their counts must lead to the end of each extent."""
    start, offset = expected.position, expected.base_offset
    extents = iter(expected.extents)
    extent = next(extents)
    stop, last = extent.position + extent.size - start, extent.end_offset
    headers: list[BatchHeader] = []
    first, base, end = 0, offset, 0
    for row in rows:
        if end == stop:
            if offset != last:
                break
            extent = next(extents)
            stop, last = extent.position + extent.size - start, extent.end_offset
            first, base = len(headers), extent.base_offset
            offset = base
        before, offset = offset, offset + row[_DELTA] + 1
        end += OVERHEAD + row[_LENGTH]
        if offset > last or end > stop:
            break
        headers.append(_new(BatchHeader, (before, *row[1:])))
    else:
        if end < stop or offset == last:
            return _Walk(headers, offset)
    # No offset of this extent is certain, since the wrong count cannot be identified.
    reason = _misfit(offset, last, end - stop)
    return _Walk(headers[:first], base, BatchDamage(max(extent.position, start), base, reason))


def _compare(rows: list[RawHeader], expected: Expectation) -> _Walk:
    """Compare the offsets and epochs that batches carry with those of the log."""
    start, offset = expected.position, expected.base_offset
    is_dense, must_equal = expected.rule is OffsetRule.DENSE, expected.is_exact
    epoch_at = expected.epoch_at
    extents = iter(expected.extents)
    extent = next(extents)
    stop, last = extent.position + extent.size - start, extent.end_offset
    headers: list[BatchHeader] = []
    base, end = offset, 0
    for row in rows:
        if end == stop:
            if is_dense and offset != last:
                break
            extent = next(extents)
            stop, last = extent.position + extent.size - start, extent.end_offset
            base = offset = extent.base_offset
            must_equal = is_dense or expected.is_exact
        base_offset = row[_BASE]
        end += OVERHEAD + row[_LENGTH]
        is_early = base_offset != offset and (must_equal or base_offset < offset)
        is_long = base_offset + row[_DELTA] >= last or end > stop
        if is_early or is_long or (epoch_at is not None and row[_EPOCH] != epoch_at(base_offset)):
            return _Walk(
                headers,
                offset,
                _describe_misplaced(row, expected, offset, extent, is_early=is_early),
            )
        headers.append(_new(BatchHeader, row))
        offset, must_equal = base_offset + row[_DELTA] + 1, is_dense
    else:
        if not is_dense or end < stop or offset == last:
            return _Walk(headers, offset)
    reason = _misfit(offset, last, end - stop)
    return _Walk(headers, offset, BatchDamage(max(extent.position, start), base, reason))


def _describe_misplaced(
    row: RawHeader, expected: Expectation, offset: int, extent: ExtentLike, *, is_early: bool
) -> BatchDamage:
    """Return the damage of a batch with wrong offsets or a wrong epoch."""
    position = expected.position + row[_AT]
    end, stop = position + OVERHEAD + row[_LENGTH], extent.position + extent.size
    base, after = row[_BASE], row[_BASE] + row[_DELTA] + 1
    if is_early:
        reason = f"the batch has offset {base} where {offset} comes next"
    elif after > extent.end_offset or end > stop:
        reason = _misfit(after, extent.end_offset, end - stop)
    else:
        epoch = expected.epoch_at(base) if expected.epoch_at else 0
        reason = f"the batch has leader epoch {row[_EPOCH]}, but was written in epoch {epoch}"
    claim = offset + row[_DELTA] + 1
    return BatchDamage(position, offset, reason, end=end if end <= stop else 0, end_offset=claim)


def _trust(rows: list[RawHeader], expected: Expectation) -> _Walk:
    """Accept the offsets that batches carry."""
    headers = list(map(BatchHeader._make, rows))
    return _Walk(headers, headers[-1].last_offset + 1 if headers else expected.base_offset)


_WALKS: Final = {
    OffsetRule.ASSIGNED: _assign,
    OffsetRule.DENSE: _compare,
    OffsetRule.SPARSE: _compare,
    OffsetRule.UNCHECKED: _trust,
}


def _misfit(offset: int, last: int, excess: int) -> str:
    if offset <= last and excess > 0:
        return f"a batch ends {excess} bytes after the extent that it begins in"
    return f"its batches end at offset {offset}, the log says {last}"


def _count_intact(view: memoryview, expected: Expectation) -> int:
    """Return the number of bytes before the first extent whose CRC is wrong."""
    for extent, crc in zip(expected.extents, expected.crcs, strict=True):
        begin = extent.position - expected.position
        end = begin + extent.size
        if begin >= 0 and end <= len(view) and checksum(view[begin:end]) != crc:
            return begin
    return len(view)


def _describe_damage(expected: Expectation, at: int) -> BatchDamage:
    extent = expected.extents[expected.extent_at(expected.position + at)]
    reason = f"these {extent.size} bytes are damaged: their CRC-32C is not the one in the index"
    return BatchDamage(extent.position, extent.base_offset, reason)


def _faulty(
    view: memoryview, expected: Expectation, at: int, offset: int, reason: str
) -> BatchDamage:
    """Return the damage of a batch, and the position of the next one if it is known."""
    position = expected.position + at
    extent = expected.extents[expected.extent_at(position)]
    offset = max(offset, extent.base_offset)
    header = frame(view, at)
    if header is None or position + header.size > extent.position + extent.size:
        return BatchDamage(position, offset, reason)
    claim = offset + max(header.last_offset_delta, 0) + 1
    return BatchDamage(position, offset, reason, end=position + header.size, end_offset=claim)


def _cut_off(
    view: memoryview, expected: Expectation, at: int, offset: int
) -> tuple[BatchDamage | None, int]:
    """Return the length of the batch that the data ends in, or damage if it exceeds its extent."""
    needed = OVERHEAD
    if len(view) - at >= OVERHEAD:
        needed += int.from_bytes(view[at + 8 : at + OVERHEAD], "big", signed=True)
    position = expected.position + at
    extent = expected.extents[expected.extent_at(position)]
    room = extent.position + extent.size - position
    if needed <= room:
        return None, needed
    reason = f"the batch is cut off: {room} of {needed} bytes are there"
    return BatchDamage(position, max(offset, extent.base_offset), reason, is_torn=True), 0


def _before_extent(
    headers: list[BatchHeader], expected: Expectation, damage: BatchDamage
) -> tuple[list[BatchHeader], int]:
    """Leave out the batches of the extent that is damaged."""
    extent = expected.extents[expected.extent_at(damage.position)]
    begin = extent.position - expected.position
    return [header for header in headers if header.position < begin], extent.base_offset


def frame(view: memoryview, at: int) -> BatchHeader | None:
    """Parse the header of a batch, sound or not; None if no complete batch can start there."""
    try:
        return batches.parse(view, at)
    except Error:
        return None
