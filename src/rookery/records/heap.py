"""Memory that the C library keeps after something large was freed: given back, or used again.

Requests can be a hundred megabytes, and what a compressed batch becomes is a thousand times what
was sent. All that is freed soon, but glibc keeps it for the next one, and in a heap for every
thread. Other C libraries are left as they are.

How a process uses memory is for its program to decide. Only processes of our own call `keep`: the
broker, the caretaker, and the worker daemon for Spark, which is off by default. In all others,
`give_back` does nothing, whatever part of the library calls it.

Having large blocks mapped and unmapped one by one (`M_MMAP_THRESHOLD`) is no way out: reads from
disk took three times the processor time, for the pages of every new block have to be cleared.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

# The numbers of glibc's parameters, and their values.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_LARGEST_IN_HEAP: Final = 8 * 1024 * 1024
_MOST_FREE: Final = 64 * 1024 * 1024

LARGE: Final = 8 * 1024 * 1024
"""From how many freed bytes on `give_back` is worth its time, some milliseconds at worst."""


# Has an item in a process that has called `keep`, and in those that it forks.
_ours: Final[list[bool]] = []


def keep(largest: int = _LARGEST_IN_HEAP) -> None:
    """Have large blocks that were freed used again, for a process whose memory is looked after.

    Only the main function of a process of ours may call this.

    Otherwise glibc gives each back to the system at once, and clears the pages of the next.

    Args:
        largest: blocks of this size or more are given back nevertheless.
    """
    tune = _of_the_library("mallopt")
    tune(_MMAP_THRESHOLD, largest)
    tune(_TRIM_THRESHOLD, _MOST_FREE)
    _ours.append(True)


def give_back() -> None:
    """Give back what is free by now, in a process that called `keep`."""
    if any(_ours):
        _of_the_library("malloc_trim")(0)


@cache
def _of_the_library(name: str) -> Callable[..., int]:
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return lambda *_: 0
    return found
