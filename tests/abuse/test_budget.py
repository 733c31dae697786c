"""Requests that are begun and never finished fill the memory that all clients share."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.abuse.attack import Attacker, header
from tests.abuse.victims import FLAGS, Victim

REQUEST_BYTES = 16 * 1024 * 1024
ANNOUNCED = 100_000_000
STALL_SECONDS = 1.0
"""A client that cannot send for this long takes it that the broker does not read."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Victim]:
    """A broker with little room for requests, so that a test can fill it."""
    flags = (*FLAGS, "--request-bytes", str(REQUEST_BYTES))
    with Victim(tmp_path / "data", flags=flags) as broker:
        yield broker


def test_unfinished_requests_do_not_block_other_clients(small: Victim) -> None:
    part = struct.pack(">i", ANNOUNCED) + header(0, 3) + bytes(REQUEST_BYTES // 2)
    with ExitStack() as stack:
        good = stack.enter_context(Attacker(small.port))
        good.ask_simple()
        for _ in range(3):
            line = stack.enter_context(Attacker(small.port))
            line.socket.settimeout(STALL_SECONDS)
            try:
                line.send(part)
            except TimeoutError:  # the broker reads no more of it, rightly
                break

        for _ in range(3):
            good.ask_simple()
