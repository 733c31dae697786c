"""Controls memory that the C library keeps after large blocks were freed.

Requests can be a hundred megabytes, and a compressed batch can expand by a factor of a thousand.
This memory is freed soon, but glibc keeps it for the next allocation, in one heap per thread. Other
C libraries are not changed.

Memory policy is the decision of the program. Only Rookery's own processes call `keep`: the broker,
the proxy and the caretaker with `rookery.service.memory`, which returns memory after peaks, and the
worker daemon for Spark, which is off by default. In all other processes, `give_back` does nothing
for any caller.

Mapping and unmapping each large block (`M_MMAP_THRESHOLD`) is not a solution: reads from disk took
three times the processor time, because the pages of every new block must be cleared.
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
"""The number of freed bytes from which `give_back` is worth its cost: milliseconds at worst."""


# Not empty in a process that has called `keep`, and in the processes it forks.
_ours: Final[list[bool]] = []


def keep(largest: int = _LARGEST_IN_HEAP) -> None:
    """Reuse large freed blocks, in a process whose memory policy is ours.

    Only the main function of a Rookery process may call this. A server uses `manage_memory` of
    `rookery.service.memory` instead, which also returns memory. Without `keep`, glibc returns each
    block to the system immediately, and the pages of the next block must be cleared.

    Args:
        largest: blocks of this size or more are still returned to the system.
    """
    tune = _library_function("mallopt")
    tune(_MMAP_THRESHOLD, largest)
    tune(_TRIM_THRESHOLD, _MOST_FREE)
    _ours.append(True)


def give_back() -> None:
    """Return free memory to the system, in a process that called `keep`."""
    if any(_ours):
        _library_function("malloc_trim")(0)


@cache
def _library_function(name: str) -> Callable[..., int]:
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return lambda *_: 0
    return function
