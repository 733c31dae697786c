"""Rookery's own broker for tests: real, on a real port, in an event loop of its own.

A test can use blocking clients, as users do, and still inspect the broker.

    with ServedBroker(tmp_path) as broker:
        AdminClient({"bootstrap.servers": broker.bootstrap})
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rookery.broker.broker import Broker
from rookery.broker.settings import BrokerSettings
from rookery.net.loop import loop_factory
from rookery.testing.ports import HOST, free_port
from rookery.testing.wait import PATIENCE_SECONDS
from rookery.wire.codec import read_response, request_frame
from rookery.wire.message import Api, Message

T = TypeVar("T")
Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


class ServedBroker:
    """A broker on a free port; brokers of one folder are one cluster."""

    def __init__(self, folder: Path, settings: BrokerSettings | None = None) -> None:
        """Choose a port; start nothing.

        Args:
            folder: the data of the broker.
            settings: what else to set; folder, address and HTTP port are set here.
        """
        self.port = free_port()
        self.settings = replace(
            settings or BrokerSettings(),
            data=str(folder),
            listen=self.bootstrap,
            http_listen="",
            caretaker="inline",
        )
        self.broker: Broker
        """The broker itself; what changes it must run in its own loop, by `do`."""
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def node_id(self) -> int:
        """The id under which the broker is known."""
        return self.broker.services.node_id

    def start(self) -> None:
        """Start the broker; return when it serves."""
        self._thread.start()
        try:
            self.do(self._start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop the broker in order."""
        try:
            self.do(self.broker.stop())
        finally:
            self._end()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the broker's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def _start(self) -> None:
        self.broker = Broker(self.settings)
        await self.broker.start()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def ask(bootstrap: str, api: Api[Req, Res], version: int, request: Req) -> Res:
    """Send one request to any Kafka, on a connection of its own, and return the answer."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as connection:
        connection.sendall(b"".join(request_frame(api, version, 1, "test", request)))
        with connection.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            return read_response(api, version, stream.read(size))
