"""Idempotent producers: which batch is new, which a repetition, which out of order.

Kafka's rules (KIP-98, KIP-360): a partition remembers of each producer its epoch and the last five
batches. A batch that repeats one of these is answered with the offset it got then; the next one
must follow without a gap; a new epoch begins at 0. Of an unknown producer any sequence is taken,
because its past may have been removed by retention.

A producer is kept as packed bytes: an epoch, the time of its last batch, and up to five batches,
oldest first. That is a third of what objects would take.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from rookery.errors import ErrorCode

REMEMBERED: Final = 5
_HEAD: Final = Struct(">hq")
_BATCH: Final = Struct(">iiq")  # first sequence, last sequence, base offset
_SEQUENCES: Final = 2**31


class Verdict(NamedTuple):
    """What becomes of a batch: it is new (no error, no offset), a repetition, or refused."""

    error: ErrorCode
    offset: int  # where a repeated batch lies already, else -1


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
    """Return the window with a new batch in it; a new epoch forgets the batches of the old one."""
    batches = b""
    if window is not None and _HEAD.unpack_from(window)[0] == epoch:
        batches = window[_HEAD.size :][-(REMEMBERED - 1) * _BATCH.size :]
    last = (first + count - 1) % _SEQUENCES
    return _HEAD.pack(epoch, time_ms) + batches + _BATCH.pack(first, last, offset)


def close(window: bytes) -> bytes:
    """Return the window of a producer whose transaction has ended: where it goes on, and no more.

    A batch of the next transaction is never a repetition of one before the marker. A client that
    gave up a batch whose answer was lost may use its numbers again, within the same epoch: taken
    for a repetition, its records would be acknowledged and be nowhere.
    """
    _, last, _ = _BATCH.unpack_from(window, len(window) - _BATCH.size)
    return window[: _HEAD.size] + _BATCH.pack(-1, last, -1)


class Known(NamedTuple):
    """What a partition knows of a producer, for DescribeProducers and for expiry."""

    epoch: int
    time_ms: int
    last_sequence: int


def describe(window: bytes) -> Known:
    """Return what a window says of its producer."""
    epoch, time_ms = _HEAD.unpack_from(window)
    _, last, _ = _BATCH.unpack_from(window, len(window) - _BATCH.size)
    return Known(epoch, time_ms, last)
