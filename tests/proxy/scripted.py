"""Brokers with scripted answers, and a proxy before them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rookery.proxy.settings import ProxySettings
from rookery.testing.servedproxy import ServedProxy

Behaviour = Callable[[socket.socket, bytes], None]
"""Answers one request, given without its length; an `OSError` ends the connection."""

TIMEOUT_SECONDS = 60


class ScriptedBroker:
    """Reads whole requests, and behaves as its script says."""

    def __init__(self, behave: Behaviour) -> None:
        self.accepted = 0
        self.ended = 0
        self._behave = behave
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def bootstrap(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_left(self) -> bool:
        """Whether all its connections have ended."""
        return self.ended == self.accepted

    def close(self) -> None:
        """Take no more connections, and wait for the end of those that there are."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream:
            try:
                while head := stream.read(4):
                    self._behave(client, stream.read(int.from_bytes(head, "big")))
            except OSError:
                pass
            finally:
                self.ended += 1


@contextmanager
def proxy_before(
    behave: Behaviour, settings: ProxySettings | None = None
) -> Iterator[tuple[ServedProxy, ScriptedBroker]]:
    """Run a proxy before one scripted broker."""
    broker = ScriptedBroker(behave)
    try:
        with ServedProxy(broker.bootstrap, settings) as proxy:
            yield proxy, broker
    finally:
        broker.close()


def exchange(port: int, data: bytes) -> bytes:
    """Send bytes to a port; return everything until the other end closes the connection."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as client:
        client.sendall(data)
        with client.makefile("rb") as stream:
            return stream.read()


def key_of(request: bytes) -> int:
    """Return the key of a request's API."""
    return int.from_bytes(request[:2], "big")


def number_of(request: bytes) -> int:
    """Return the correlation id of a request."""
    number: int = struct.unpack_from(">i", request, 4)[0]
    return number


def framed(number: int, body: bytes) -> bytes:
    """Return a response with a body of any bytes."""
    return struct.pack(">ii", 4 + len(body), number) + body
