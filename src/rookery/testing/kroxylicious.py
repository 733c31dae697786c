"""A real Kroxylicious on the loopback interface, in front of a Kafka: the peer of our proxy.

    with KafkaServer() as kafka, KroxyliciousServer(kafka.bootstrap) as proxy:
        print(proxy.bootstrap)

It has one virtual cluster without filters. The jars come from Maven the first time
(`rookery.testing.jars`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from rookery.testing import probe
from rookery.testing.folder import WorkFolder
from rookery.testing.jars import KROXYLICIOUS, bundle_jars, program
from rookery.testing.java import Java
from rookery.testing.ports import HOST, free_ports
from rookery.testing.server import TestServer

_SOURCE: Final = Path(__file__).parent / "maven" / "ProxyMain.java"
# Without a range of its own, a cluster has three nodes with the ids from 0 on.
_NODES: Final = 8
_HEAP_MB: Final = 384


def kroxylicious_java(cache: Path | None = None) -> Java:
    """Return the machine's Java with the jars of Kroxylicious, fetched if need be.

    Raises:
        ConfigError: Java or Maven is not installed.
        Unavailable: Maven could not fetch the jars.
    """
    return Java(program("java"), bundle_jars(KROXYLICIOUS, cache))


class KroxyliciousServer(TestServer):
    """One process: start, stop, kill, pause, start again on the same ports."""

    def __init__(
        self,
        upstream: str,
        *,
        folder: Path | None = None,
        java: Java | None = None,
        heap_mb: int = _HEAP_MB,
    ) -> None:
        """Choose ports and write the configuration; start nothing.

        Args:
            upstream: brokers of the Kafka, host:port and separated by commas; the ids of all its
                brokers are below 8.
            folder: where to keep everything; if not given, a new one that `close` removes.
            java: what to run it with; if not given, the machine's Java with fetched jars.
            heap_mb: how much memory Java may use for objects.
        """
        home = WorkFolder(folder, "kroxylicious-")
        super().__init__("Kroxylicious", home.path / "kroxylicious.log", home)
        self.port = free_ports(_NODES + 1)
        """The port where clients begin; those after it are the brokers'."""
        self._folder = home.path
        self._upstream = upstream
        self._java = java or kroxylicious_java()
        self._heap_mb = heap_mb

    @property
    def bootstrap(self) -> str:
        """Return `host:port` where clients begin."""
        return f"{HOST}:{self.port}"

    def _command(self) -> list[str]:
        classes = self._folder / "classes"
        if not classes.exists():
            self._java.compile(_SOURCE, classes)
        # It reads YAML, of which JSON is a part.
        settings = self._folder / "proxy.yaml"
        settings.write_text(json.dumps(self._configuration()), "utf-8")
        return self._java.command(
            "ProxyMain", str(settings), heap_mb=self._heap_mb, log="warn", classes=classes
        )

    def _configuration(self) -> dict[str, object]:
        nodes = {"name": "all", "start": 0, "end": _NODES - 1}
        gateway = {
            "name": "plain",
            "portIdentifiesNode": {"bootstrapAddress": self.bootstrap, "nodeIdRanges": [nodes]},
        }
        cluster = {
            "name": "peer",
            "targetCluster": {"bootstrapServers": self._upstream},
            "gateways": [gateway],
        }
        return {"virtualClusters": [cluster]}

    def _is_ready(self) -> bool:
        return bool(probe.brokers_seen(self.port)) and probe.is_serving(self.port)
