"""An event loop that ends after its connections have closed, for clients that do not wait.

aiokafka closes a TLS connection without waiting for the end of its shutdown. A loop that ends
before leaves the socket to the garbage collector, which reports it in a later test.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_PATIENCE = 120.0


class TidyLoop(asyncio.SelectorEventLoop):
    """Knows the sockets of all connections that were made in it."""

    def __init__(self) -> None:
        """Start without connections."""
        super().__init__()
        self.sockets: list[socket.socket] = []

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connect, and keep the socket."""
        transport, protocol = await super().create_connection(*args, **options)
        self.sockets.append(transport.get_extra_info("socket"))
        return transport, protocol

    async def wait_for_closed_connections(self) -> None:
        """Return when every socket is closed."""
        async with asyncio.timeout(_PATIENCE):
            while any(sock.fileno() >= 0 for sock in self.sockets):  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.001)


def run_tidily(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, and wait until its connections have closed."""

    async def run() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TidyLoop)
        try:
            return await work
        finally:
            await loop.wait_for_closed_connections()

    with asyncio.Runner(loop_factory=TidyLoop) as runner:
        return runner.run(run())
