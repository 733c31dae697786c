"""How the C library keeps large freed blocks, observed in a separate process."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

import rookery

LOOK = """
import resource
from rookery.records import heap
{tune}
def use():
    blocks = [bytearray(4 << 20) for _ in range(12)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(tune: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(tune=tune)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries are left alone")
def test_large_blocks_are_reused() -> None:
    assert _faults("heap.keep()") < _faults("") / 10


@pytest.mark.parametrize(("tune", "calls"), [("", []), ("heap.keep()", [0])])
def test_only_our_own_processes_return_memory_to_the_system(tune: str, calls: list[int]) -> None:
    program = (
        "from rookery.records import heap\n"
        f"{tune}\n"
        "calls = []\n"
        "heap._library_function = lambda _: calls.append\n"
        "heap.give_back()\n"
        "print(calls)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(calls)


def test_servers_keep_freed_memory_only_where_it_is_returned_later() -> None:
    """A proxy that kept it and returned nothing held the memory of its largest peak forever."""
    source = Path(rookery.__file__).parent
    callers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "heap.keep(" in path.read_text()
    }
    # Workers for Spark end with their application.
    assert callers == {"service/memory.py", "spark/tuning/daemon.py"}
