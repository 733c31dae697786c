"""Manages the memory of a process: it is reused, and returned to the system after peaks.

Peaks are large requests, many clients, large responses.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rookery.records import heap
from rookery.service.periodic import PeriodicTasks

LONGEST_WAIT: Final = 100
"""The most checks between two tries while the process is large: five minutes."""
_INTERVAL_MS: Final = 3_000
# Returning less is not worth the cost of requesting the pages again.
_WORTH_BYTES: Final = 32 * 1024 * 1024
# A try takes time in proportion to the memory, so a large process must grow more.
_GROWTH_DIVISOR: Final = 4
_STATUS: Final = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        return int(_STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


class Memory:
    """Returns free memory to the system while the process is larger than at its smallest.

    A try can take 0.1 s per gigabyte, and threads that allocate wait for its end. During a peak, it
    has no effect, and the end of the peak does not show in the size of the process. So each try
    without effect doubles the wait for the next one, up to `LONGEST_WAIT`.
    """

    def __init__(
        self,
        resident: Callable[[], int] = resident_bytes,
        give_back: Callable[[], None] = heap.give_back,
    ) -> None:
        """Begin with the present size.

        Args:
            resident: returns the resident memory of the process.
            give_back: returns free memory to the system.
        """
        self._resident = resident
        self._give_back = give_back
        self._least = self._lowest = resident()
        self._wait = 1
        self._checks = 0

    async def tidy(self) -> None:
        """Return free memory if the process has grown much since the last try, or one is due."""
        now = self._resident()
        self._least = min(self._least, now)
        self._lowest = min(self._lowest, now)
        self._checks += 1
        grown, much = now - self._lowest, max(_WORTH_BYTES, self._lowest // _GROWTH_DIVISOR)
        has_grown = grown >= much
        is_due = self._checks >= self._wait and now - self._least >= _WORTH_BYTES
        if not has_grown and not is_due:
            return
        await asyncio.to_thread(self._give_back)
        self._checks = 0
        self._lowest = self._resident()
        has_helped = now - self._lowest >= _WORTH_BYTES
        self._wait = 1 if has_grown or has_helped else min(2 * self._wait, LONGEST_WAIT)


@asynccontextmanager
async def manage_memory() -> AsyncIterator[None]:
    """Reuse freed memory in this process meanwhile, and return it to the system after peaks."""
    heap.keep()
    tasks = PeriodicTasks()
    tasks.every(_INTERVAL_MS, "release of unused memory", Memory().tidy)
    try:
        yield
    finally:
        await tasks.stop()
