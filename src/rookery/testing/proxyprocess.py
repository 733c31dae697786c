"""`rookery proxy` as a process of a test: started, stopped, killed, paused, started again.

with ProxyProcess(kafka.bootstrap) as proxy:
    AdminClient({"bootstrap.servers": proxy.bootstrap})
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rookery.testing import probe
from rookery.testing.folder import WorkFolder
from rookery.testing.ports import HOST, free_ports
from rookery.testing.server import TestServer

NODES: Final = 8
"""The number of ports for brokers, unless the flags set others."""


class ProxyProcess(TestServer):
    """A proxy on ports that stay the same."""

    def __init__(
        self,
        upstream: str,
        flags: Sequence[str] = (),
        *,
        folder: Path | None = None,
        nodes: int = NODES,
        protocol: str = "plaintext",
    ) -> None:
        """Choose ports; start nothing.

        Args:
            upstream: brokers of the cluster, host:port and separated by commas.
            flags: further flags of the command.
            folder: where to keep the log; if not given, a new one that `close` removes.
            nodes: the number of ports for brokers; with 0, the proxy has broker nodes.
            protocol: the protocol of the listener, such as sasl_ssl.
        """
        home = WorkFolder(folder, "proxy-")
        super().__init__("the proxy", home.path / "proxy.log", home)
        self.port = free_ports(nodes + 1)
        """The port where clients begin; those after it are the brokers'."""
        self._upstream = upstream
        self._flags = list(flags)
        self._nodes = nodes
        self._protocol = protocol
        self._said = 0

    @property
    def bootstrap(self) -> str:
        """The address where clients begin."""
        return f"{HOST}:{self.port}"

    @property
    def ports(self) -> range:
        """All ports: where clients begin, and those of the brokers."""
        return range(self.port, self.port + self._nodes + 1)

    def words(self, start: int = 0) -> str:
        """Return its output and its log, from a byte on."""
        return self.log.read_bytes()[start:].decode(errors="replace") if self.log.exists() else ""

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self._said = self.log.stat().st_size if self.log.exists() else 0
        super().launch()

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "rookery.cli.main", "proxy", "--json"),
            *("--upstream", self._upstream, "--http-listen", ""),
            *("--listen", f"{self._protocol}://{self.bootstrap}"),
            *self._port_flags(),
            *self._flags,
        ]

    def _port_flags(self) -> list[str]:
        if not self._nodes:
            return ["--nodes", "proxy"]
        return ["--node-ports", f"{self.port + 1}-{self.port + self._nodes}"]

    def _is_ready(self) -> bool:
        if not any(line.startswith('{"clusters"') for line in self.words(self._said).splitlines()):
            return False
        # It can be ready before its upstream is.
        return self._protocol != "plaintext" or bool(probe.brokers_seen(self.port))
