"""A way to a server on which requests or answers can be held back or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rookery.testing.ports import HOST, free_port


class Detour:
    """Passes bytes both ways; what is held back in either direction waits for its release."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.requests = asyncio.Event()
        """Set while requests pass."""
        self.answers = asyncio.Event()
        """Set while answers pass."""
        self.held = asyncio.Event()
        """Set once something was held back."""
        self.requests.set()
        self.answers.set()
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def endpoint(self) -> str:
        return f"{HOST}:{self.port}"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(HOST, self._target)
        self._writers += [writer, inner_writer]
        await asyncio.gather(
            self._pass(reader, inner_writer, self.requests),
            self._pass(inner_reader, writer, self.answers),
        )

    def drop(self) -> None:
        """End all connections, and what they hold back with them."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if not gate.is_set():
                    self.held.set()
                await gate.wait()
                writer.write(data)
            writer.write_eof()
        except OSError:
            writer.transport.abort()


@asynccontextmanager
async def detour(target: int) -> AsyncIterator[Detour]:
    """Open a way to a port."""
    way = Detour(target)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(way.carry(reader, writer)))

    server = await asyncio.start_server(accept, HOST, way.port)
    try:
        yield way
    finally:
        server.close()
        way.drop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
