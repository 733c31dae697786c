"""Returns memory to the system after peaks: large requests, many clients, large responses."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from rookery.records import heap

INTERVAL_MS: Final = 3_000
"""The interval of the checks."""
# Returning less is not worth the cost of requesting the pages again.
_GROWTH_BYTES: Final = 32 * 1024 * 1024
_WORTH_BYTES: Final = 1024 * 1024
_STATUS: Final = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        return int(_STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


class Memory:
    """Tracks the lowest memory use, and returns free memory to the system."""

    def __init__(self) -> None:
        self._lowest = resident_bytes()
        self._is_hopeful = False

    async def tidy(self) -> None:
        """Return free memory if the process has grown much since the last time.

        Repeat this at the next check as long as it helps: much of the memory may have been in use.
        """
        now = resident_bytes()
        has_grown = now - self._lowest >= _GROWTH_BYTES
        if not has_grown and not self._is_hopeful:
            self._lowest = min(self._lowest, now)
            return
        await asyncio.to_thread(heap.give_back)
        self._lowest = resident_bytes()
        self._is_hopeful = has_grown or now - self._lowest >= _WORTH_BYTES
