"""Whether a process listens at an address."""

from __future__ import annotations

import asyncio
import socket

from rookery.net.reach import Reach, reach
from rookery.testing.ports import free_port

HOST = "127.0.0.1"


async def test_a_port_without_a_listener_is_refused() -> None:
    assert await reach(HOST, free_port()) is Reach.REFUSED


async def test_busy_process_is_reachable_though_it_accepts_nothing() -> None:
    with socket.create_server((HOST, 0)) as listening:
        assert await reach(HOST, listening.getsockname()[1]) is Reach.OPEN


async def test_proxy_without_its_process_is_refused() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), HOST, 0)
    async with server:
        assert await reach(HOST, server.sockets[0].getsockname()[1]) is Reach.REFUSED


async def test_invalid_host_name_is_inconclusive() -> None:
    assert await reach("no..name", 1) is Reach.UNKNOWN
