"""Unfinished requests fill the memory that all clients share."""

from __future__ import annotations

import struct
from contextlib import ExitStack

import pytest

from tests.abuse.attack import Attacker, header
from tests.abuse.targets import ADMITTED, Target

pytestmark = ADMITTED

REQUEST_BYTES = 16 * 1024 * 1024
ANNOUNCED = 100_000_000
STALL_SECONDS = 1.0
"""A client that cannot send for this long takes it that the broker does not read."""


@pytest.fixture
def flags() -> tuple[str, ...]:
    """Leave little room for requests, so that a test can fill it."""
    return ("--request-bytes", str(REQUEST_BYTES))


def test_unfinished_requests_do_not_block_other_clients(target: Target) -> None:
    part = struct.pack(">i", ANNOUNCED) + header(0, 3) + bytes(REQUEST_BYTES // 2)
    with ExitStack() as stack:
        good = stack.enter_context(Attacker(target.door))
        good.ask_simple()
        for _ in range(3):
            line = stack.enter_context(Attacker(target.door))
            line.socket.settimeout(STALL_SECONDS)
            try:
                line.send(part)
            except TimeoutError:  # the broker reads no more of it, rightly
                break

        for _ in range(3):
            good.ask_simple()
