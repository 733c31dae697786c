"""A client that sends any bytes, written out by hand: what attacks a codec may not lean on it."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

from rookery.testing.ports import HOST

TIMEOUT_SECONDS = 20
FIRST, SECOND = 77, 78


def framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def header(
    key: int,
    version: int,
    *,
    is_flexible: bool = False,
    client: bytes | None = b"abuse",
    tags: bytes = b"\0",
) -> bytes:
    size = -1 if client is None else len(client)
    start = struct.pack(">hhih", key, version, FIRST, size) + (client or b"")
    return start + tags if is_flexible else start


SIMPLE = framed(struct.pack(">hhih", 18, 0, SECOND, -1))


class Attacker:
    """One connection."""

    def __init__(self, port: int, *, receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(TIMEOUT_SECONDS)
        if receive_bytes:  # what the system takes for a client that does not read
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect((HOST, port))
        self._stream = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Send all of it; return whether the broker has left the connection open so far."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def read(self) -> bytes | None:
        """Return the next frame; None if the broker has closed the connection instead."""
        try:
            prefix = self._stream.read(4)
        except ConnectionError:
            return None
        if not prefix:
            return None
        assert len(prefix) == 4, "the broker closed the connection in the middle of an answer"
        size = int.from_bytes(prefix, "big", signed=True)
        frame = self._stream.read(size)
        assert len(frame) == size
        assert b"Traceback" not in frame
        return frame

    def wait_for_bytes(self) -> None:
        """Wait until an answer begins; leave it unread."""
        self.socket.recv(1, socket.MSG_PEEK)

    def vanish(self) -> None:
        """End the connection at once, without an orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._stream.close()
        self.socket.close()

    def ask(self, request: bytes) -> bytes | None:
        """Send a request; return its answer, or None if the connection was closed."""
        self.send(framed(request))
        answer = self.read()
        assert answer is None or answer[:4] == struct.pack(">i", FIRST)
        return answer

    def ask_simple(self) -> None:
        """Ask for the versions, which is always answered."""
        self.socket.sendall(SIMPLE)
        answer = self.read()
        assert answer is not None, "the broker has closed the connection of a good client"
        check_simple(answer)


def check_simple(answer: bytes) -> None:
    assert answer[:6] == struct.pack(">ih", SECOND, 0)


def simple(port: int) -> None:
    """Check that a new client gets an answer."""
    with Attacker(port) as line:
        line.ask_simple()


def is_closed_after(port: int, data: bytes) -> bool:
    """Send bytes; return whether the broker closes the connection without a word."""
    with Attacker(port) as line:
        line.send(data)
        return line.read() is None


def varint(value: int) -> bytes:
    """Return an unsigned number as flexible versions write it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
