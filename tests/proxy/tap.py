"""A TCP relay that records the frames between a proxy and its broker."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from rookery.model.address import Address
from rookery.testing.ports import HOST
from rookery.wire.frame import FrameSplitter

_PART: Final = 1 << 16
_LARGEST: Final = 2**31 - 1


class Tap:
    """Listens on a port of its own, and connects each client to one broker."""

    def __init__(self, broker: Address) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._requests: list[bytes] = []
        self._responses: list[bytes] = []
        self._server = socket.create_server((HOST, 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        """The address of the tap."""
        return f"{HOST}:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def take(self) -> tuple[list[bytes], list[bytes]]:
        """Return the requests and responses since the last call, without lengths."""
        with self._lock:
            rows = self._requests.copy(), self._responses.copy()
            self._requests.clear()
            self._responses.clear()
        return rows

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection(self._broker)
            self._open += [client, broker]
            for source, target, frames in (
                (client, broker, self._requests),
                (broker, client, self._responses),
            ):
                args = (source, target, frames)
                threading.Thread(target=self._relay, args=args, daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, frames: list[bytes]) -> None:
        splitter = FrameSplitter(_LARGEST, minimum=0)
        with suppress(OSError):
            while data := source.recv(_PART):
                with self._lock:
                    frames += map(bytes, splitter.feed(data))
                # Kept before it is passed on: a client that has an answer finds it here.
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
