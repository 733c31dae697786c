"""A server as a child process, that can be killed and started again with the same data."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from rookery.cli.demo.childprocess import ChildProcess
from rookery.clock import loop_seconds
from rookery.errors import Unavailable

HOST: Final = "127.0.0.1"
# Below the range from which the system takes ports for outgoing connections: while the broker is
# down, one of those could take its port, or a client that tries to reach it meet itself.
_PORTS: Final = range(20_000, 32_000)
_START_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.01


class ChildServer(ChildProcess):
    """One server and its process."""

    def __init__(self, command: str, ready: bytes, folder: Path, flags: Sequence[str]) -> None:
        """Start nothing yet.

        Args:
            command: the command of Rookery: broker or proxy.
            ready: a part of what the command prints when it serves.
            folder: for the log file of the server.
            flags: the flags of the command.
        """
        super().__init__(folder / f"{command}.log")
        self._name = command
        self._ready = ready
        self._command = [sys.executable, "-m", "rookery.cli.main", command, "--json", *flags]

    async def start(self) -> float:
        """Start it, and return after how many seconds it serves.

        Raises:
            Unavailable: it ended, or did not answer in time; the text has the end of its log.
        """
        begin, said = loop_seconds(), self.log.stat().st_size if self.log.exists() else 0
        self.launch(self._command)
        while self._ready not in self.log.read_bytes()[said:]:
            if self.status is not None:
                raise Unavailable(f"the {self._name} ended at its start:\n{self.words()}")
            if loop_seconds() - begin > _START_SECONDS:
                raise Unavailable(f"the {self._name} did not start in time:\n{self.words()}")
            await asyncio.sleep(_POLL_SECONDS)
        return loop_seconds() - begin


def free_address(taken: Collection[str] = ()) -> str:
    """Return an address of this host that nothing listens on.

    Args:
        taken: addresses that are chosen already.

    Raises:
        Unavailable: there is none.
    """
    # Each process begins elsewhere, so that two at the same moment do not find the same port.
    start = os.getpid() * 40 % len(_PORTS)
    ports = list(_PORTS)
    for port in ports[start:] + ports[:start]:
        if f"{HOST}:{port}" in taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return f"{HOST}:{port}"
    raise Unavailable(f"no port between {_PORTS.start} and {_PORTS.stop} is free on {HOST}")
