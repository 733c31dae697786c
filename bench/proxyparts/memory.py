"""The memory of idle connections: growth of the resident set, by connection."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import Final

from proxyparts.figures import MEMORY, Figure
from proxyparts.rig import OURS, PEER, Route
from proxyparts.scene import Scene
from rookery.model.address import parse_address
from rookery.wire.codec import request_frame
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest

_WARM: Final = 100
_SETTLE_SECONDS: Final = 2.0


def memory(scene: Scene, connections: int) -> None:
    """Open connections that have asked for ApiVersions, and look how much each proxy has grown.

    The proxies are new: memory that earlier clients have left would hide the growth. Each client's
    connection has one to Kafka, so that Kafka takes as many.
    """
    grown: dict[str, float] = {}
    with scene.rig.routes() as routes:
        for route in routes[1:]:
            grown[route.name] = _growth(route, connections)
            scene.figures.say(f"{route.name}: {grown[route.name]:.1f} KB a connection")
    what = f"memory per idle connection, of {connections}"
    scene.figures.add(Figure(what, "KB", None, grown[OURS], grown[PEER], bar=MEMORY))


def _growth(route: Route, connections: int) -> float:
    with ExitStack() as stack:
        for _ in range(_WARM):
            stack.enter_context(_connect(route))
        time.sleep(_SETTLE_SECONDS)
        before = route.resident_kb()
        for _ in range(connections):
            stack.enter_context(_connect(route))
        time.sleep(_SETTLE_SECONDS)
        return (route.resident_kb() - before) / connections


def _connect(route: Route) -> socket.socket:
    """Return a connection on which ApiVersions was answered."""
    connection = socket.create_connection(parse_address(route.bootstrap), 30)
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    connection.sendall(b"".join(request_frame(API_VERSIONS, 3, 1, "bench", request)))
    left = int.from_bytes(_read(connection, 4), "big")
    _read(connection, left)
    return connection


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise SystemExit("the proxy has closed an idle connection")
        data += more
    return bytes(data)
