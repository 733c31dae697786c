"""Free ports that are given out once."""

from __future__ import annotations

import subprocess
import sys

from rookery.testing.ports import free_port, free_ports

_ELSEWHERE = """
import itertools
from rookery.testing import ports
ports._offsets = itertools.count({first} - ports._FIRST)
print(*(ports.free_port() for _ in range(50)))
"""


def test_processes_get_distinct_ports() -> None:
    mine = {free_port() for _ in range(50)}
    looking_at_the_same = _ELSEWHERE.format(first=min(mine))
    said = subprocess.run(
        [sys.executable, "-c", looking_at_the_same], check=True, capture_output=True, text=True
    )
    theirs = {int(port) for port in said.stdout.split()}
    assert len(theirs) == 50
    assert not mine & theirs


def test_consecutive_ports_belong_to_the_caller_alone() -> None:
    first = free_ports(5)

    assert not set(range(first, first + 5)) & {free_port() for _ in range(50)}
