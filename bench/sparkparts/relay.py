"""A relay to a server on this host that counts the bytes of its answers."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Final, Self

_HOST: Final = "127.0.0.1"
_PIECE: Final = 256 * 1024


class Relay:
    """Passes connections on, in threads."""

    def __init__(self, port: int) -> None:
        """Listen; `port` is the server's."""
        self._upstream = port
        self._listening = socket.create_server((_HOST, 0))
        self._lock = threading.Lock()
        self._taken = 0

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://{_HOST}:{self._listening.getsockname()[1]}"

    @property
    def taken(self) -> int:
        """How many bytes the server has answered so far."""
        with self._lock:
            return self._taken

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A thread that waits in `accept` is woken by this, and not by a close alone.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection((_HOST, self._upstream))
            for ends in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:  # noqa: FBT001
        try:
            while data := source.recv(_PIECE):
                if is_answer:
                    with self._lock:
                        self._taken += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # One of them has gone: the other is to notice.
            source.close()
            target.close()
