"""TCP ports of the loopback interface that nobody uses."""

from __future__ import annotations

import itertools
import os
import socket
from typing import Final

HOST: Final = "127.0.0.1"

# Below the range from which the system gives ports to outgoing connections: one of those could
# take a stopped server's port before it is started again. Each process begins in another place,
# so that two that look at the same moment do not find the same port.
_FIRST, _LAST, _BLOCK = 20_000, 32_000, 40
_offsets = itertools.count(os.getpid() * _BLOCK)


def free_port() -> int:
    """Return a port that nobody listens on and that this process has not been given before."""
    for _ in range(_LAST - _FIRST):
        port = _FIRST + next(_offsets) % (_LAST - _FIRST)
        if _is_free(port):
            return port
    raise OSError(f"no free TCP port between {_FIRST} and {_LAST} on {HOST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections that linger after their end do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
