"""Memory that the C library keeps after something large was freed, given back to the system.

Requests can be a hundred megabytes, and what a compressed batch becomes is a thousand times what
was sent. All that is freed soon, but glibc keeps it for the next one, and in a heap for every
thread. Other C libraries are left as they are.

Having large blocks mapped and unmapped one by one (`M_MMAP_THRESHOLD`) is no way out: reads from
disk took three times the processor time, for the pages of every new block have to be cleared.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

LARGE: Final = 8 * 1024 * 1024
"""From how many freed bytes on `give_back` is worth its time, some milliseconds at worst."""


def give_back() -> None:
    """Give back what is free by now."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], int]:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda _: 0
    return found
