"""A gate in front of an etcd member, for cutting it off from the other members.

Each request between members names its sender (`X-Server-From`), and no two members share a
connection; so a gate knows whose connection it passes on.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import Final

from rookery.testing.ports import HOST, free_port

_FROM: Final = re.compile(rb"\r\nX-Server-From: ([0-9a-f]+)\r\n", re.IGNORECASE)
_CHUNK: Final = 1 << 16


class _Passage:
    """One connection through the gate."""

    def __init__(self, inner: socket.socket, outer: socket.socket) -> None:
        self.sockets = (inner, outer)
        self.peer = 0
        """The id of the member at the other end; 0 until it has sent it."""

    def close(self) -> None:
        for peer_socket in self.sockets:
            # Wakes the threads that read from it, which then close it.
            with contextlib.suppress(OSError):
                peer_socket.shutdown(socket.SHUT_RDWR)


class PeerGate:
    """Passes bytes on to a member's peer port, except those of refused members."""

    def __init__(self) -> None:
        self.port: Final = free_port()
        self._lock = threading.Lock()
        self._refused: set[int] = set()
        self._is_cut = False
        self._passages: set[_Passage] = set()
        self._listener: socket.socket | None = None

    @property
    def is_cut(self) -> bool:
        """Whether all connections are refused."""
        return self._is_cut

    def open(self, target: int) -> None:
        """Listen, and pass on to a port."""
        self._listener = socket.create_server((HOST, self.port))
        threading.Thread(target=self._accept, args=(self._listener, target), daemon=True).start()

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        with self._lock:
            self._is_cut = True
            self._drop()

    def refuse(self, member: int) -> None:
        """Refuse the connections of one member."""
        with self._lock:
            self._refused.add(member)
            self._drop()

    def mend(self) -> None:
        """Accept all members again."""
        with self._lock:
            self._is_cut = False
            self._refused.clear()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            for passage in self._passages:
                passage.close()

    def _drop(self) -> None:
        """End the connections of refused members; those of unknown members stay."""
        for passage in self._passages:
            if self._is_cut or passage.peer in self._refused:
                passage.close()

    def _accept(self, listener: socket.socket, target: int) -> None:
        while True:
            try:
                outer, _ = listener.accept()
            except OSError:
                return
            try:
                inner = socket.create_connection((HOST, target))
            except OSError:
                outer.close()
                continue
            passage = _Passage(inner, outer)
            with self._lock:
                self._passages.add(passage)
            threading.Thread(target=self._inward, args=(passage,), daemon=True).start()

    def _inward(self, passage: _Passage) -> None:
        """Pass on both ways, until either end is closed."""
        inner, outer = passage.sockets
        outward = threading.Thread(target=_pass, args=(inner, outer), daemon=True)
        outward.start()
        with contextlib.suppress(OSError):
            while (data := outer.recv(_CHUNK)) and self._may_pass(passage, data):
                inner.sendall(data)
        passage.close()
        outward.join()
        with self._lock:
            self._passages.discard(passage)
        inner.close()
        outer.close()

    def _may_pass(self, passage: _Passage, data: bytes) -> bool:
        with self._lock:
            if match := _FROM.search(data):
                passage.peer = int(match[1], 16)
            return not self._is_cut and passage.peer not in self._refused


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
