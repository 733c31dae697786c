"""Splits a stream's memory between one response in flight and the batches and rows held."""

from __future__ import annotations

from typing import Final

_ANSWER_PART: Final = 4
_MAX_ANSWER: Final = 64 * 1024 * 1024
# With less, each request would fetch one batch at a time.
_MIN_ANSWER: Final = 64 * 1024


def of_answer(memory: int) -> int:
    """Return the maximum number of bytes to request at once."""
    return max(_part(memory), _MIN_ANSWER)


def of_rows(memory: int) -> int:
    """Return the maximum number of bytes of batches and rows to hold."""
    return memory - _part(memory)


def enough(rows: int) -> int:
    """Return the memory setting that allows the given number of bytes of batches and rows."""
    return rows + min(-(-rows // (_ANSWER_PART - 1)), _MAX_ANSWER)


def _part(memory: int) -> int:
    return min(memory // _ANSWER_PART, _MAX_ANSWER)
