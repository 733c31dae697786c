"""Free TCP ports of the loopback interface."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"

# Below the range from which the system gives ports to outgoing connections: one of those could
# take a stopped server's port before it is started again. Each process begins in another place,
# so that two that look at the same moment seldom try the same port. The range is larger than the
# number of ports that a run of all tests takes: a process that comes to the end of the range would
# get its own ports again, and one of them can belong to a server that is down for the moment.
_FIRST, _LAST, _BLOCK = 10_000, 32_000, 40
_offsets = itertools.count(os.getpid() * _BLOCK)


def free_port() -> int:
    """Return a port that no process listens on and that no other caller has received."""
    for _ in range(_LAST - _FIRST):
        port = _FIRST + next(_offsets) % (_LAST - _FIRST)
        if _claim(port) and _is_free(port):
            return port
    raise OSError(f"no free TCP port between {_FIRST} and {_LAST} on {HOST}")


def free_ports(count: int) -> int:
    """Return the first of a number of consecutive free ports."""
    ports = [free_port()]
    while len(ports) < count:
        port = free_port()
        ports = [*ports, port] if port == ports[-1] + 1 else [port]
    return ports[0]


def _claim(port: int) -> bool:
    """Take a port for this process, until it ends; return False if another one has it.

    A port is given long before its server listens, and is its server's own while that is down.
    """
    try:
        # One byte of the file is one port: a single descriptor holds any number of claims.
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _claims() -> int:
    path = Path(tempfile.gettempdir()) / f"rookery-testing-ports-{os.getuid()}"
    # Never closed: that would release every claim.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections that linger after their end do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
