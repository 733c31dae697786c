"""A real Apache Kafka on the loopback interface: one server, or a cluster of them.

    with KafkaServer() as kafka:
        print(kafka.bootstrap)

Each is a broker and a controller in one process, with its own ports and its own folder, and is
gone after the block. The jars come from Maven the first time (`rookery.testing.jars`).
"""

from __future__ import annotations

import shutil
import subprocess
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Self

from rookery.errors import Unavailable
from rookery.testing import probe
from rookery.testing.certificates import Certificates
from rookery.testing.folder import WorkFolder
from rookery.testing.java import Java
from rookery.testing.log4j import explain
from rookery.testing.properties import PLAINTEXT, ClusterPlan, KafkaSettings, ServerNode, write
from rookery.testing.server import Servers, TestServer


class KafkaNode(TestServer):
    """One server: format its folder, start, stop, kill, start again with the same data."""

    STOP_SECONDS = 30.0

    def __init__(
        self, plan: ClusterPlan, node: ServerNode, java: Java, home: WorkFolder | None = None
    ) -> None:
        log = node.folder / "kafka.log"
        super().__init__(f"Kafka node {node.id}", log, home or WorkFolder(node.folder))
        self._plan = plan
        self._node = node
        self._java = java
        self._training = node.folder / "classes.jsa"
        write(self._properties, plan.properties(node))

    @property
    def id(self) -> int:
        """Return the node's id, which is its broker id."""
        return self._node.id

    @property
    def cluster_id(self) -> str:
        """Return the cluster id of the metadata."""
        return self._plan.cluster_id

    @property
    def bootstrap(self) -> str:
        """Return `host:port` of the PLAINTEXT listener."""
        return self._node.address()

    @property
    def data(self) -> Path:
        """Return the folder with the logs of the partitions."""
        return self._node.folder / "data"

    @property
    def jars(self) -> Path:
        """Return the folder with the jars that it runs."""
        return self._java.libs

    @property
    def users(self) -> dict[str, str]:
        """Return the users of the SASL listeners, with their passwords."""
        return dict(self._plan.settings.users)

    @property
    def certificates(self) -> Certificates:
        """Return the PEM files for the TLS listeners."""
        if self._plan.certificates is None:
            raise ValueError("this Kafka has no TLS listener: ask for SSL or SASL_SSL")
        return self._plan.certificates

    def address(self, listener: str = PLAINTEXT) -> str:
        """Return `host:port` of a listener, as in `SASL_SSL`."""
        return self._node.address(listener)

    def port(self, listener: str = PLAINTEXT) -> int:
        """Return the port of a listener; it stays the same over restarts."""
        return self._node.ports[listener]

    def behind(self, port: int) -> Self:
        """Return this server as clients see it through the PLAINTEXT port of a proxy."""
        other = copy(self)
        other._node = replace(self._node, ports={**self._node.ports, PLAINTEXT: port})
        return other

    def wait_ready(self, peers: int = 1) -> None:
        """Return when the server answers and lists `peers` brokers, itself included."""
        self._wait_until(lambda: self._is_ready(peers))

    def stop(self) -> int | None:
        """Let the server shut down in order; kill it if it takes too long."""
        status = super().stop()
        if status is not None:
            self._keep_archive()
        return status

    def tool(
        self, name: str, *args: str, text: str | None = None, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command line tools; see `rookery.testing.java.TOOLS`."""
        return self._java.tool(name, *args, text=text, timeout=timeout)

    def last_words(self, lines: int = 40) -> str:
        """Return the errors since the last start, and the end of the log without settings."""
        return explain(self._words(), lines)

    @property
    def _properties(self) -> Path:
        return self._node.folder / "server.properties"

    def _command(self) -> list[str]:
        if not (self.data / "meta.properties").exists():
            self._format()
        command = self._java.command(
            "kafka.Kafka", str(self._properties), heap_mb=self._plan.settings.heap_mb, log="info"
        )
        if not self._java.archive.exists():
            # The first server to end stores its classes, which halves the time of later starts.
            command.insert(1, f"-XX:ArchiveClassesAtExit={self._training}")
        return command

    def _is_ready(self, peers: int = 1) -> bool:
        seen = probe.brokers_seen(self.port())
        return (
            self.id in seen
            and len(seen) >= peers
            and probe.is_serving(self.port())
            # Kafka opens its listeners one after the other, in any order.
            and all(probe.is_open(port) for port in self._node.ports.values())
        )

    def _format(self) -> None:
        done = self.tool("kafka-storage", *self._plan.format_args(self._properties))
        if done.returncode:
            raise Unavailable(
                f"Kafka could not format {self.data} (exit status {done.returncode}):\n"
                f"{done.stdout}{done.stderr}"
            )

    def _keep_archive(self) -> None:
        if self._training.exists():
            # Copied into the same folder, then renamed, so that no process sees an incomplete file.
            part = self._java.archive.with_suffix(f".{self.cluster_id}")
            shutil.copyfile(self._training, part)
            part.rename(self._java.archive)
            self._training.unlink()


class KafkaServer(KafkaNode):
    """A Kafka of one server, in a folder of its own."""

    def __init__(
        self,
        settings: KafkaSettings | None = None,
        *,
        folder: Path | None = None,
        java: Java | None = None,
    ) -> None:
        """Choose ports and write the settings; start nothing.

        Args:
            settings: listeners, users and Kafka's own settings.
            folder: where to keep everything; if not given, a new one that `close` removes.
            java: what to run it with; if not given, the machine's Java with fetched jars.
        """
        java = java or Java.find()
        home = WorkFolder(folder, "kafka-")
        plan = ClusterPlan.make(home.path, 1, settings or KafkaSettings())
        super().__init__(plan, plan.nodes[0], java, home)

    def close(self) -> None:
        """Stop the server and remove its folder, unless the folder was given."""
        self.stop()
        super().close()


class KafkaCluster(Servers[KafkaNode]):
    """Several servers that know each other; each is a broker and a voter.

    `close` kills them: stopped in order, the last ones would wait for a majority of controllers
    that is gone.
    """

    def __init__(
        self,
        count: int = 3,
        settings: KafkaSettings | None = None,
        *,
        folder: Path | None = None,
        java: Java | None = None,
    ) -> None:
        """Choose ports and write the settings of all servers; start nothing.

        The arguments are those of `KafkaServer`.
        """
        java = java or Java.find()
        home = WorkFolder(folder, "kafka-")
        plan = ClusterPlan.make(home.path, count, settings or KafkaSettings())
        self.nodes = [KafkaNode(plan, node, java) for node in plan.nodes]
        """The servers; their ids are 1, 2, 3…"""
        super().__init__(self.nodes, home)

    @property
    def bootstrap(self) -> str:
        """Return the PLAINTEXT addresses of all servers, with commas between."""
        return ",".join(node.bootstrap for node in self.nodes)

    def node(self, number: int) -> KafkaNode:
        """Return the server with this broker id."""
        return self.nodes[number - 1]

    def wait_ready(self) -> None:
        """Return when each server lists all others."""
        for node in self.nodes:
            node.wait_ready(peers=len(self.nodes))

    def tool(
        self, name: str, *args: str, text: str | None = None, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command line tools; see `rookery.testing.java.TOOLS`."""
        return self.nodes[0].tool(name, *args, text=text, timeout=timeout)
