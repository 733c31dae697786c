"""Gives memory back to the system after a rush: large requests, many clients, large answers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from rookery.records import heap

INTERVAL_MS: Final = 3_000
"""How often to look."""
# Giving back less is not worth that the pages have to be asked for again.
_GROWTH_BYTES: Final = 32 * 1024 * 1024
_WORTH_BYTES: Final = 1024 * 1024
_STATUS: Final = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return how much memory this process has; 0 where the system does not tell."""
    try:
        return int(_STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


class Memory:
    """Remembers how little was enough, and has the rest given back."""

    def __init__(self) -> None:
        self._lowest = resident_bytes()
        self._is_hopeful = False

    async def tidy(self) -> None:
        """Give back what is free, if the process has grown much since that was last done.

        And again at the next look, as long as that helps: much of it may have been in use.
        """
        now = resident_bytes()
        has_grown = now - self._lowest >= _GROWTH_BYTES
        if not has_grown and not self._is_hopeful:
            self._lowest = min(self._lowest, now)
            return
        await asyncio.to_thread(heap.give_back)
        self._lowest = resident_bytes()
        self._is_hopeful = has_grown or now - self._lowest >= _WORTH_BYTES
