"""Memory goes back to the system after a rush."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: in one that has run other tests, freed memory is taken again first.
_SCRIPT = """
import asyncio
from rookery.records import heap
from rookery.service.memory import Memory, resident_bytes

async def main():
    heap.keep()
    memory, mebibyte = Memory(), 1024 * 1024
    before = resident_bytes()
    # Between blocks that stay, so that the allocator cannot give them back by itself.
    blocks = [bytearray(b"\\x01") * 100_000 for _ in range(1000)]
    kept = blocks[::50]
    if {looks_early}:
        await memory.tidy()
    assert resident_bytes() - before > 64 * mebibyte
    del blocks
    await memory.tidy()
    assert resident_bytes() - before < 32 * mebibyte
    assert len(kept) == 20

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells, and only glibc gives back")
@pytest.mark.parametrize("looks_early", [False, True])
def test_freed_memory_is_returned_to_the_system(
    looks_early: bool,
) -> None:
    script = _SCRIPT.format(looks_early=looks_early)
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
