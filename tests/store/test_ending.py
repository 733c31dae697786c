"""A process that has used a store exits with status 0, even immediately afterwards."""

from __future__ import annotations

import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from rookery.testing.seaweed import SeaweedServer

# Without the pause for the threads of the client library at exit, one process of eight is aborted.
PROCESSES = 32
AT_ONCE = 4
USE = """
import asyncio, sys
from rookery.store.open import open_store

async def use(url):
    store = open_store(url)
    await store.create("key", [b"x" * 1000])
    await store.delete("key")

asyncio.run(use(sys.argv[1]))
"""


@pytest.mark.usefixtures("own_processes")
def test_processes_that_used_a_store_exit_cleanly(seaweed: SeaweedServer) -> None:
    def use(_: int) -> int:
        url = seaweed.url(f"ending/{secrets.token_hex(8)}")
        return subprocess.run([sys.executable, "-c", USE, url], check=False).returncode

    with ThreadPoolExecutor(AT_ONCE) as crew:
        assert set(crew.map(use, range(PROCESSES))) == {0}
