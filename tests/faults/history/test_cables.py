"""Cables close every socket, whenever they are cut."""

from __future__ import annotations

import gc
import socket
from contextlib import ExitStack

import pytest

from rookery.testing.ports import HOST, free_port
from tests.faults.history.cables import Cable, Cables

ROUNDS, CLIENTS = 30, 20


@pytest.mark.parametrize("is_cut", [False, True])
def test_connections_that_begin_at_the_end_leave_no_socket_open(*, is_cut: bool) -> None:
    """A socket that is left open is a warning, and a warning is an error."""
    with socket.create_server((HOST, 0), backlog=ROUNDS * CLIENTS) as broker, ExitStack() as stack:
        for _ in range(ROUNDS):
            front = free_port()
            with Cables([Cable(front, broker.getsockname()[1])]) as cables:
                for _ in range(CLIENTS):
                    stack.enter_context(socket.create_connection((HOST, front)))
                if is_cut:
                    cables.cut(0)
        gc.collect()
