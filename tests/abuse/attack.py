"""A client that sends any bytes, written by hand: an attack must not use the attacked codec."""

from __future__ import annotations

import socket
import ssl
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rookery.testing.ports import HOST

TIMEOUT_SECONDS = 60
FIRST, SECOND = 77, 78
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
# What a connection that the broker has closed may raise; with TLS, its end can come unannounced.
ENDED = (ConnectionError, ssl.SSLError)


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


@dataclass(frozen=True, slots=True)
class Door:
    """A way to a broker: a port, with TLS or without, as a user or as a stranger."""

    port: int
    tls: ssl.SSLContext | None = None
    user: str = ""
    """Empty for a client that does not log in."""
    password: str = ""


class Attacker:
    """One connection."""

    def __init__(self, door: Door | int, *, receive_bytes: int = 0) -> None:
        if isinstance(door, int):
            door = Door(door)
        plain = socket.socket()
        plain.settimeout(TIMEOUT_SECONDS)
        if receive_bytes:  # what the system takes for a client that does not read
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            plain.connect((HOST, door.port))
            self.socket = door.tls.wrap_socket(plain, server_hostname=HOST) if door.tls else plain
        except OSError:
            plain.close()
            raise
        self._stream = self.socket.makefile("rb")
        if door.user:
            self.log_in(door.user, door.password)

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
        except ENDED:
            return False
        return True

    def end_input(self) -> None:
        """Send no more, without a word of TLS about it; answers can still be read."""
        socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def read(self) -> bytes | None:
        """Return the next frame; None if the broker has closed the connection instead."""
        try:
            prefix = self._stream.read(4)
        except ENDED:
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
        socket.socket.recv(self.socket, 1, socket.MSG_PEEK)  # TLS itself cannot peek

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

    def log_in(self, user: str, password: str) -> None:
        """Log in with PLAIN."""
        assert self.choose(b"PLAIN") == 0
        answer = self.authenticate(b"\0".join((b"", user.encode(), password.encode())))
        assert answer is not None
        assert answer[4:6] == b"\0\0", answer

    def choose(self, mechanism: bytes) -> int | None:
        """Choose a mechanism; return the error code, None if the connection was closed."""
        answer = self.ask(handshake(mechanism))
        return None if answer is None else int.from_bytes(answer[4:6], "big")

    def authenticate(self, message: bytes) -> bytes | None:
        """Send a message of a mechanism; return the answer."""
        return self.ask(token(message))

    def ask_simple(self) -> None:
        """Ask for the versions, which is always answered."""
        self.socket.sendall(SIMPLE)
        answer = self.read()
        assert answer is not None, "the broker has closed the connection of a good client"
        check_simple(answer)


def check_simple(answer: bytes) -> None:
    assert answer[:6] == struct.pack(">ih", SECOND, 0)


def handshake(mechanism: bytes) -> bytes:
    """Return a request that chooses a SASL mechanism."""
    return header(SASL_HANDSHAKE, 1) + struct.pack(">h", len(mechanism)) + mechanism


def token(message: bytes) -> bytes:
    """Return a request with a message of a SASL mechanism."""
    return header(SASL_AUTHENTICATE, 0) + struct.pack(">i", len(message)) + message


def simple(door: Door | int) -> None:
    """Check that a new client gets an answer."""
    with Attacker(door) as line:
        line.ask_simple()


def is_closed_after(door: Door | int, data: bytes) -> bool:
    """Send bytes; return whether the broker closes the connection without a word."""
    with Attacker(door) as line:
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
