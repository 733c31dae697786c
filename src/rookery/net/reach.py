"""Checks whether a process listens at an address, without sending a request.

The kernel accepts connections for a process that is busy or paused, and refuses them after the
process has ended. So a refusal distinguishes a dead process from a slow one.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from enum import IntEnum, auto
from typing import Any, Final

_UNREACHABLE: Final = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}
# A proxy accepts first, and closes when it finds that the process is dead.
_PROXY_SECONDS: Final = 0.3


class Reach(IntEnum):
    """The result of a connection attempt; the higher, the more likely a process is alive there."""

    REFUSED = auto()
    """Nothing listens there."""
    SILENT = auto()
    """The host does not respond."""
    UNKNOWN = auto()
    """The attempt failed locally: the name is unknown, or this process lacks resources."""
    OPEN = auto()
    """The connection was accepted and stayed open."""


async def reach(host: str, port: int, seconds: float = 1.0) -> Reach:
    """Try to connect to each address of a host; return the best result."""
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter if the text is not a valid name
        return Reach.UNKNOWN
    results = [await _try(family, where, seconds) for family, _, _, _, where in addresses]
    return max(results, default=Reach.UNKNOWN)


async def _try(family: int, where: Any, seconds: float) -> Reach:
    loop = asyncio.get_running_loop()
    try:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(0.0)
            async with asyncio.timeout(seconds):
                await loop.sock_connect(sock, where)
            return await _stays_open(sock)
    except (ConnectionRefusedError, ConnectionResetError):
        return Reach.REFUSED
    except TimeoutError:
        return Reach.SILENT
    except OSError as error:
        return Reach.SILENT if error.errno in _UNREACHABLE else Reach.UNKNOWN


async def _stays_open(sock: socket.socket) -> Reach:
    try:
        async with asyncio.timeout(_PROXY_SECONDS):
            received = await asyncio.get_running_loop().sock_recv(sock, 1)
    except TimeoutError:
        return Reach.OPEN
    return Reach.OPEN if received else Reach.REFUSED
