"""TCP ports of the loopback interface that nobody uses."""

from __future__ import annotations

import itertools
import os
import socket
import sys
from collections import deque
from typing import Final

HOST: Final = "127.0.0.1"

# Below the range from which the system gives ports to outgoing connections: one of those could
# take a stopped server's port before it is started again. Each process begins in another place,
# so that two that look at the same moment seldom try the same port.
_FIRST, _LAST, _BLOCK = 20_000, 32_000, 40
_offsets = itertools.count(os.getpid() * _BLOCK)

# A port is given long before its server listens, and is its server's own while that is down. So
# each is claimed, until this process ends or has been given many more.
_claims: deque[socket.socket] = deque()
_MOST_CLAIMS: Final = 3000


def free_port() -> int:
    """Return a port that nobody listens on and that no process has been given of late."""
    for _ in range(_LAST - _FIRST):
        port = _FIRST + next(_offsets) % (_LAST - _FIRST)
        if _claim(port):
            if _is_free(port):
                return port
            _claims.pop().close()
    raise OSError(f"no free TCP port between {_FIRST} and {_LAST} on {HOST}")


def _claim(port: int) -> bool:
    """Tell all processes of this machine that the port is taken; return whether it was not."""
    claim = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        try:
            # A name without a file: the system forgets it with this process.
            claim.bind(f"\0rookery-testing-port-{port}")
        except OSError:
            claim.close()
            return False
    _claims.append(claim)
    if len(_claims) > _MOST_CLAIMS:
        _claims.popleft().close()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections that linger after their end do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
