"""What the C library does with large blocks that were freed; looked at in a process of its own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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
        "heap._of_the_library = lambda _: calls.append\n"
        "heap.give_back()\n"
        "print(calls)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(calls)
