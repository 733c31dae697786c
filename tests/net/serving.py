"""The common part of these tests: numbered requests, and listeners that end with the test."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rookery.net.connection import Connection
from rookery.net.listener import HostLimit, Listener, ListenerSettings
from rookery.net.outbox import Answer, Budget
from rookery.net.requestqueue import Handler
from rookery.net.settings import ConnectionSettings
from rookery.wire.buffer import Buffer
from rookery.wire.frame import Frame


def request(number: int, body: Buffer = b"") -> bytes:
    """A request's frame, as far as the network layer looks at it."""
    return struct.pack(">hhi", 99, 1, number) + body


def answer(frame: Buffer, body: Buffer = b"") -> list[Buffer]:
    """Answer a request: its number, and a body."""
    return [struct.pack(">i", 4 + len(body)), bytes(frame[4:8]), body]


def number_of(frame: Buffer) -> int:
    return int.from_bytes(frame[:4], "big")


def echo(connection: Connection, frame: Frame) -> Answer:
    return answer(frame, frame[8:])


class Parking:
    """A handler that answers when the test says so."""

    def __init__(self) -> None:
        self.parked: dict[int, tuple[Frame, asyncio.Future[Answer]]] = {}
        self._arrived = asyncio.Event()

    def __call__(self, connection: Connection, frame: Frame) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.parked[int.from_bytes(frame[4:8], "big")] = frame, future
        self._arrived.set()
        return future

    async def has(self, count: int) -> None:
        """Wait until a given number of requests have been started."""
        while len(self.parked) < count:
            self._arrived.clear()
            await self._arrived.wait()

    def release(self, *numbers: int, body: Buffer = b"") -> None:
        for number in numbers:
            frame, future = self.parked[number]
            future.set_result(answer(frame, body))


@asynccontextmanager
async def listening(
    handler: Handler[Connection],
    *,
    budget: Budget | None = None,
    tls: ssl.SSLContext | None = None,
    max_connections: int = 10_000,
    tls_handshake_timeout_ms: int = 10_000,
    hosts: HostLimit | None = None,
    **connection: Any,  # fields of ConnectionSettings
) -> AsyncIterator[Listener]:
    settings = ListenerSettings(
        port=0,
        max_connections=max_connections,
        tls_handshake_timeout_ms=tls_handshake_timeout_ms,
        connection=ConnectionSettings(**connection),
    )
    listener = Listener(handler, settings, budget=budget, tls=tls)
    listener.hosts = hosts or listener.hosts
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop(grace_ms=0)
