"""Filters batches for compaction; unchanged batches are kept byte for byte.

A batch that loses some of its records is rebuilt with the rest. Its offsets, its producer and its
codec are preserved. The first compaction that finds tombstones records in their batch how long they
are kept, as Kafka does since KIP-534: attribute bit 6 is set, the base timestamp is that time, and
the records' timestamps are relative to it.

Records of aborted transactions are removed immediately. Batches of open transactions are not
examined.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rookery.errors import ApiError, Corrupt
from rookery.log.compaction.fates import NONE, Fates
from rookery.log.compaction.source import BatchPiece
from rookery.model.control import ControlRecordType
from rookery.records import batches, recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.records.sieve import OffsetMap, rebase

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SiftedBatches:
    """The part of a stretch that is kept."""

    data: list[bytes] = field(default_factory=list)
    """Batches, joined for each piece."""
    size: int = 0
    removed: int = 0
    """The number of records removed."""
    is_changed: bool = False
    """Whether a batch was removed or rebuilt, other than a last batch that was already empty."""
    gone: BatchHeader | None = None
    """The last batch, if nothing of it is kept."""


class _Batch(NamedTuple):
    """The kept bytes of a batch, None if nothing is kept, and the number of records removed."""

    data: memoryview | bytes | None
    removed: int


class NotedPiece(NamedTuple):
    """How far a piece was added to the map."""

    end_offset: int
    is_full: bool


def note(
    last: OffsetMap, piece: BatchPiece, start: int, until: int, fates: Fates = NONE
) -> NotedPiece:
    """Add the keys of a piece's batches to the map: those from `start` on and before `until`."""
    end = start
    for header in piece.headers:
        if header.last_offset < start or header.base_offset >= until:
            continue
        counts = not header.is_control and not fates.is_aborted(header)
        if counts and not _note_batch(last, piece, header):
            return NotedPiece(header.base_offset, is_full=True)
        end = header.last_offset + 1
    return NotedPiece(end, is_full=False)


def _note_batch(last: OffsetMap, piece: BatchPiece, header: BatchHeader) -> bool:
    try:
        return last.note(recordcodec.payload(piece.data, header), header)
    except (ApiError, Corrupt) as error:
        # Its checksum is right, so the producer sent it like this. It is kept and reported once.
        log.warning("the batch at offset %d is not compacted: %s", header.base_offset, error)
        return True


@dataclass(frozen=True, slots=True)
class Sieve:
    """Decides whether a record is kept."""

    last: OffsetMap
    end: int
    """The offset up to which the map knows the keys; later records are kept."""
    now_ms: int
    delete_retention_ms: int
    fates: Fates = NONE
    """The aborted transactions."""

    def sift(self, piece: BatchPiece, kept: SiftedBatches) -> None:
        """Add the kept part of a piece."""
        parts: list[Buffer] = []
        for header in piece.headers:
            if kept.gone is not None and not kept.gone.record_count:
                kept.is_changed = True  # an empty batch that is not the last one
            data, removed = self._batch(piece, header)
            kept.removed += removed
            # A view is the unchanged batch; bytes were rebuilt.
            kept.is_changed = kept.is_changed or removed > 0 or isinstance(data, bytes)
            kept.gone = header if data is None else None
            if data is not None:
                parts.append(data)
        joined = b"".join(parts)
        kept.size += len(joined)
        kept.data.append(joined)

    def _batch(self, piece: BatchPiece, header: BatchHeader) -> _Batch:
        whole = _Batch(piece.data[header.position : header.end], 0)
        if header.base_offset >= self.end:
            return whole
        if header.is_control:
            return _Batch(None, 1) if self._is_done(piece, header) else whole
        if not header.record_count or self.fates.is_aborted(header):
            return _Batch(None, header.record_count)
        try:
            return self._records(whole, piece, header)
        except (ApiError, Corrupt):
            return whole  # `note` has reported it, now or when it was new

    def _is_done(self, piece: BatchPiece, header: BatchHeader) -> bool:
        """Whether a marker may be removed, because no reader needs it any more.

        An abort marker is kept while fetches list the transaction, since readers skip its producer
        up to the marker. Compaction that has passed the marker removes the transaction from the
        list. The next compaction removes the marker.
        """
        if header.max_timestamp + self.delete_retention_ms > self.now_ms:
            return False
        if self.fates.is_listed(header):
            return False
        [record] = recordcodec.read(piece.data, header)
        ends = ControlRecordType.COMMIT, ControlRecordType.ABORT
        return recordcodec.control(record).type in ends

    def _records(self, whole: _Batch, piece: BatchPiece, header: BatchHeader) -> _Batch:
        payload = recordcodec.payload(piece.data, header)
        is_over = header.has_delete_horizon and header.base_timestamp <= self.now_ms
        count, tombstones, highest, rest = self.last.sift(payload, header, is_over)
        removed = header.record_count - count
        if not count:
            return _Batch(None, removed)
        needs_horizon = bool(tombstones) and not header.has_delete_horizon
        if rest is None and not needs_horizon:
            return whole
        new = header._replace(record_count=count, max_timestamp=highest)
        left = payload if rest is None else rest
        if needs_horizon:
            horizon = self.now_ms + self.delete_retention_ms
            left = rebase(left, count, header.base_timestamp - horizon)
            bits = header.attributes | batches.DELETE_HORIZON
            new = new._replace(attributes=bits, base_timestamp=horizon)
        return _Batch(_build_batch(new, left), removed)


def empty(header: BatchHeader) -> bytes:
    """Return a batch without records in place of one that had some, to cover its offsets."""
    kept = batches.LOG_APPEND_TIME | batches.TRANSACTIONAL
    new = header._replace(
        attributes=header.attributes & kept, base_timestamp=batches.NO_TIMESTAMP, record_count=0
    )
    return batches.seal(new, b"")


def spread(all_kept: Iterable[SiftedBatches]) -> Iterator[bytes]:
    """Yield the kept batches of all stretches, and an empty one if the last batch was removed."""
    gone: BatchHeader | None = None
    for kept in all_kept:
        yield from kept.data
        gone = kept.gone
    if gone is not None:
        yield empty(gone)


def _build_batch(header: BatchHeader, payload: Buffer) -> bytes:
    packed = header.codec.compress(payload)
    return batches.seal(header, packed) + packed
