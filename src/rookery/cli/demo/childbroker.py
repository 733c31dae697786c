"""A broker as a child process, that can be killed and started again with the same data."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

from rookery.errors import Unavailable

HOST: Final = "127.0.0.1"
# Below the range from which the system takes ports for outgoing connections: while the broker is
# down, one of those could take its port, or a client that tries to reach it meet itself.
_PORTS: Final = range(20_000, 32_000)
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.01
_READY: Final = b'{"bootstrap"'  # what `rookery broker --json` prints when it serves


class ChildBroker:
    """One broker and its process."""

    def __init__(self, folder: Path, durability: str, flags: Sequence[str] = ()) -> None:
        """Choose a port; start nothing.

        Args:
            folder: for the data and the broker's log file.
            durability: as the broker's setting of that name.
            flags: further flags of `rookery broker`.
        """
        self.bootstrap = f"{HOST}:{_free_port()}"
        self.log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            sys.executable, "-m", "rookery.cli.main", "broker", "--json",
            "--data", str(folder / "data"),
            "--listen", self.bootstrap,
            "--http-listen", "",
            "--durability", durability,
            *flags,
        ]  # fmt: skip

    async def start(self) -> float:
        """Start it and return when it serves, with the seconds that took.

        Raises:
            Unavailable: it ended, or did not answer in time; the text has its last words.
        """
        begin, said = perf_counter(), self.log.stat().st_size if self.log.exists() else 0
        process = self._launch()
        while _READY not in self.log.read_bytes()[said:]:
            if process.poll() is not None:
                raise Unavailable(f"the broker ended at its start:\n{self._last_words()}")
            if perf_counter() - begin > _START_SECONDS:
                raise Unavailable(f"the broker did not start in time:\n{self._last_words()}")
            await asyncio.sleep(_POLL_SECONDS)
        return perf_counter() - begin

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for us; we end the child ourselves.
                start_new_session=True,
                cwd=self.log.parent,
            )
        return self._process

    def kill(self) -> None:
        """End it as a crash would (kill -9)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Let it stop in order; kill it if that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def _last_words(self) -> str:
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-15:])


def _free_port() -> int:
    # Each process begins elsewhere, so that two at the same moment do not find the same port.
    start = os.getpid() * 40 % len(_PORTS)
    ports = list(_PORTS)
    for port in ports[start:] + ports[:start]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise Unavailable(f"no port between {_PORTS.start} and {_PORTS.stop} is free on {HOST}")
