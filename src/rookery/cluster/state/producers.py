"""Idempotent producers: decides whether a batch is new, a duplicate or out of order.

Kafka's rules (KIP-98, KIP-360): for each producer, a partition stores its epoch and the last five
batches. A duplicate of one of these gets the offset of the original. The next batch must follow
without a gap; a new epoch begins at 0. Any sequence is accepted from an unknown producer, because
retention may have removed its history.

A producer is stored as packed bytes: an epoch, the time of its last batch or marker, and up to
five batches, oldest first. Before them, one record represents the transactions that have ended.
That is a third of the size of objects.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from rookery.errors import ErrorCode

REMEMBERED: Final = 5
_HEAD: Final = Struct(">hq")
_BATCH: Final = Struct(">iiq")  # first sequence, last sequence, base offset
_SEQUENCES: Final = 2**31
# Replaces a first sequence: transactions have ended, the newest with this last sequence.
_ENDED: Final = -1
_NOTHING: Final = _BATCH.pack(_ENDED, -1, -1)


class Verdict(NamedTuple):
    """The verdict on a batch: new (no error, no offset), a duplicate, or rejected."""

    error: ErrorCode
    offset: int  # of the first copy of a repeated batch, else -1


NEW: Final = Verdict(ErrorCode.NONE, -1)
FENCED: Final = Verdict(ErrorCode.INVALID_PRODUCER_EPOCH, -1)
OUT_OF_ORDER: Final = Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def judge(window: bytes | None, epoch: int, first: int, count: int) -> Verdict:
    """Decide about a batch of `count` records that begins with sequence `first`."""
    if window is None:
        return NEW
    current, _ = _HEAD.unpack_from(window)
    if epoch < current:
        return FENCED
    if epoch > current:
        return NEW if first == 0 else OUT_OF_ORDER
    last = (first + count - 1) % _SEQUENCES
    newest_last = -1
    for begin, end, offset in _BATCH.iter_unpack(window[_HEAD.size :]):
        if begin == first and end == last:
            return Verdict(ErrorCode.NONE, offset)
        newest_last = end
    return NEW if first == (newest_last + 1) % _SEQUENCES else OUT_OF_ORDER


def remember(
    window: bytes | None, epoch: int, first: int, count: int, *, offset: int, time_ms: int
) -> bytes:
    """Return the window with a new batch added; a new epoch drops the batches of the old one."""
    end, batches = _split(window)
    if window is not None and _HEAD.unpack_from(window)[0] != epoch:
        end, batches = end and _NOTHING, b""
    last = (first + count - 1) % _SEQUENCES
    kept = batches[-(REMEMBERED - 1) * _BATCH.size :]
    return _HEAD.pack(epoch, time_ms) + end + kept + _BATCH.pack(first, last, offset)


def close(window: bytes | None, epoch: int, time_ms: int) -> bytes:
    """Return the window of a producer whose transaction ended: only its next sequence is kept.

    A batch of the next transaction is never a duplicate of one before the marker. A client that
    gave up on a batch after its response was lost may reuse its sequence numbers within the same
    epoch. If that were treated as a duplicate, its records would be acknowledged but not stored.
    """
    last = -1
    if window is not None and _HEAD.unpack_from(window)[0] == epoch:
        last = describe(window).last_sequence
    return _HEAD.pack(epoch, time_ms) + _BATCH.pack(_ENDED, last, -1)


class ProducerFacts(NamedTuple):
    """The state of a producer in a partition, for DescribeProducers and for expiry."""

    epoch: int
    time_ms: int
    last_sequence: int
    has_ended: bool
    """Whether one of its transactions has ended here."""


def describe(window: bytes) -> ProducerFacts:
    """Decode a window."""
    epoch, time_ms = _HEAD.unpack_from(window)
    end, _ = _split(window)
    _, last, _ = _BATCH.unpack_from(window, len(window) - _BATCH.size)
    return ProducerFacts(epoch, time_ms, last, bool(end))


def _split(window: bytes | None) -> tuple[bytes, bytes]:
    """Return the record for ended transactions, if any, and the batches."""
    if window is None:
        return b"", b""
    first, _, _ = _BATCH.unpack_from(window, _HEAD.size)
    begin = _HEAD.size + (_BATCH.size if first == _ENDED else 0)
    return window[_HEAD.size : begin], window[begin:]
