"""Checks whether a Kafka server answers, with requests encoded by hand.

It does not use `rookery.wire`, because tests of the codec depend on it.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from rookery.testing.ports import HOST

_API_VERSIONS, _METADATA = 18, 3
_TIMEOUT: Final = 10.0


def is_open(port: int) -> bool:
    """Return whether a process accepts connections on this port."""
    try:
        socket.create_connection((HOST, port), _TIMEOUT).close()
    except OSError:
        return False
    return True


def is_serving(port: int) -> bool:
    """Return whether a server on this port answers ApiVersions without an error."""
    try:
        (code,) = struct.unpack_from(">h", _ask(port, _API_VERSIONS, 0, b""))
    except OSError:
        return False
    return bool(code == 0)


def brokers_seen(port: int) -> frozenset[int]:
    """Return the ids of the brokers that the server on this port lists; none if it is silent."""
    try:
        return _broker_ids(_ask(port, _METADATA, 1, struct.pack(">i", 0)))
    except OSError:
        return frozenset()


def _ask(port: int, key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", key, version, 1, -1) + body
    with socket.create_connection((HOST, port), _TIMEOUT) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _read(connection, 4))
        return _read(connection, size)[4:]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the server closed the connection in the middle of an answer")
        data += part
    return data


def _broker_ids(answer: bytes) -> frozenset[int]:
    (count,), at = struct.unpack_from(">i", answer), 4
    ids = set()
    for _ in range(count):
        node, host = struct.unpack_from(">ih", answer, at)
        at += 6 + host + 4
        (rack,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(rack, 0)
        ids.add(node)
    return frozenset(ids)
