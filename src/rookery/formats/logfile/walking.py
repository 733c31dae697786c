"""A `.log` file: batches one after the other, nothing between them, and where that stops being so.

A file is walked in windows: `walk` takes the bytes of one, and tells the headers of the batches
that are whole and sound, how far they reach, and what is wrong behind them. A batch that is cut
off at the end of the file is a torn tail: Kafka was stopped while it wrote, and whoever appends
next cuts it away.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader
from rookery.records.kernel import Buffer

LENGTH_BYTES: Final = batches.OVERHEAD
"""How many bytes of a batch must be there to know how long it is."""


class Fault(NamedTuple):
    """What is wrong with a log file, and where."""

    position: int
    """The byte of the file where the first bad batch begins."""
    offset: int
    """The first offset that the file cannot be trusted to hold."""
    reason: str
    is_torn: bool = False
    """Whether the batch is only cut off by the end of the file."""

    @property
    def text(self) -> str:
        """The fault in words, without the file's name."""
        return f"byte {self.position}, offset {self.offset}: {self.reason}"


class Walk(NamedTuple):
    """The batches of one window of a log file."""

    headers: list[BatchHeader]
    """Their `position` is that in the file."""
    end: int
    """The byte of the file behind the last sound batch."""
    next_offset: int
    """The offset behind the last sound batch."""
    fault: Fault | None
    wanted: int = 0
    """How many bytes the next batch needs in all, if the window ends within it."""


def walk(window: Buffer, position: int, next_offset: int, *, is_last: bool) -> Walk:
    """Check the batches of a window of a log file, their CRCs and the order of their offsets.

    Args:
        window: bytes of the file, from the beginning of a batch on.
        position: where in the file they begin.
        next_offset: the lowest offset that the first batch may have.
        is_last: whether the file ends where the window ends.
    """
    rows, error = batches.sound(window)
    headers, next_offset, fault = _in_order(rows, position, next_offset)
    end = headers[-1].end if headers else position
    if fault is None and error is not None:
        fault = Fault(end, next_offset, _reason(error))
    left = len(window) - (end - position)
    wanted = 0
    if fault is None and left:
        wanted = _wanted(window, end - position)
        if is_last:
            text = f"the batch is cut off: {left} of {wanted} bytes are there"
            fault = Fault(end, next_offset, text, is_torn=True)
    return Walk(headers, end, next_offset, fault, wanted)


def _in_order(
    rows: list[BatchHeader], position: int, next_offset: int
) -> tuple[list[BatchHeader], int, Fault | None]:
    headers: list[BatchHeader] = []
    for row in rows:
        at = position + row.position
        if row.base_offset < next_offset or row.last_offset_delta < 0:
            text = f"the batch says it begins at offset {row.base_offset}, which is before that"
            return headers, next_offset, Fault(at, next_offset, text)
        headers.append(row._replace(position=at))
        next_offset = row.last_offset + 1
    return headers, next_offset, None


def _reason(error: Exception) -> str:
    # The kernel names the byte of the window, which means nothing to who reads the file.
    _, _, reason = str(error).rpartition(": ")
    return reason


def _wanted(window: Buffer, at: int) -> int:
    head = bytes(window[at : at + LENGTH_BYTES])
    if len(head) < LENGTH_BYTES:
        return LENGTH_BYTES
    return LENGTH_BYTES + int.from_bytes(head[8:], "big", signed=True)


def check_batch(batch: Buffer, name: str, position: int) -> BatchHeader:
    """Read and check one batch that was found by an index.

    Raises:
        Corrupt: it is damaged; the text begins with the file's name and the position.
    """
    try:
        headers = batches.verify(batch)
    except Corrupt as error:
        raise Corrupt(f"{name}: byte {position}: {_reason(error)}") from error
    if len(headers) != 1:
        raise Corrupt(f"{name}: byte {position}: {len(headers)} batches where one was expected")
    return headers[0]._replace(position=position)
