"""Memory goes back to the system after a rush."""

from __future__ import annotations

import sys

import pytest

from rookery.broker.memory import Memory, resident_bytes

MEBIBYTE = 1024 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells, and only glibc gives back")
async def test_what_was_freed_is_given_back() -> None:
    memory = Memory()
    before = resident_bytes()
    # Between blocks that stay, so that the allocator cannot give them back by itself.
    blocks = [bytearray(b"\x01") * 100_000 for _ in range(1000)]
    kept = blocks[::50]
    del blocks

    await memory.tidy()

    assert resident_bytes() - before < 32 * MEBIBYTE
    assert len(kept) == 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells, and only glibc gives back")
async def test_what_was_in_use_at_the_first_look_is_given_back_at_the_next() -> None:
    memory = Memory()
    before = resident_bytes()
    blocks = [bytearray(b"\x01") * 100_000 for _ in range(1000)]
    kept = blocks[::50]
    await memory.tidy()
    assert resident_bytes() - before > 64 * MEBIBYTE

    del blocks
    await memory.tidy()

    assert resident_bytes() - before < 32 * MEBIBYTE
    assert len(kept) == 20
