"""How a stream's memory is shared out: one answer on its way in, and all that is held of others."""

from __future__ import annotations

from typing import Final

_ANSWER_PART: Final = 4
_MAX_ANSWER: Final = 64 * 1024 * 1024
# Less would be one batch at a time.
_MIN_ANSWER: Final = 64 * 1024


def of_answer(memory: int) -> int:
    """Return how many bytes may be asked for at once."""
    return max(_part(memory), _MIN_ANSWER)


def of_rows(memory: int) -> int:
    """Return how many bytes may be held of batches and rows."""
    return memory - _part(memory)


def enough(rows: int) -> int:
    """Return a memory of which so many bytes may be held of batches and rows."""
    return rows + min(-(-rows // (_ANSWER_PART - 1)), _MAX_ANSWER)


def _part(memory: int) -> int:
    return min(memory // _ANSWER_PART, _MAX_ANSWER)
