"""A real Apache Kafka on the loopback interface: one server, or a cluster of them.

    with KafkaServer() as kafka:
        print(kafka.bootstrap)

Each is a broker and a controller in one process, with its own ports and its own folder, and is
gone after the block. The jars come from Maven the first time (`rookery.testing.jars`).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rookery.errors import Unavailable
from rookery.testing import probe
from rookery.testing.certificates import Certificates
from rookery.testing.java import Java
from rookery.testing.process import Process
from rookery.testing.properties import PLAINTEXT, KafkaSettings, Node, Plan, write

_POLL: Final = 0.05
_START_POLLS: Final = 1800  # at least 90 s: three servers may share one busy core
_STOP_GRACE: Final = 30.0


class KafkaNode:
    """One server: format its folder, start, stop, kill, start again with the same data."""

    def __init__(self, plan: Plan, node: Node, java: Java) -> None:
        self._plan = plan
        self._node = node
        self._java = java
        self._process: Process | None = None
        self._training = node.folder / "classes.jsa"
        node.folder.mkdir(parents=True, exist_ok=True)
        write(self._properties, plan.properties(node))

    @property
    def id(self) -> int:
        """Return the node's id, which is its broker id."""
        return self._node.id

    @property
    def cluster_id(self) -> str:
        """Return the id that the cluster's metadata bears."""
        return self._plan.cluster_id

    @property
    def bootstrap(self) -> str:
        """Return `host:port` of the PLAINTEXT listener."""
        return self._node.address()

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Tell whether the process lives."""
        return self._process is not None and self._process.ended() is None

    @property
    def data(self) -> Path:
        """Return the folder with the logs of the partitions."""
        return self._node.folder / "data"

    @property
    def log(self) -> Path:
        """Return the file with what the server said, over all its starts."""
        return self._node.folder / "kafka.log"

    @property
    def jars(self) -> Path:
        """Return the folder with the jars that it runs."""
        return self._java.libs

    @property
    def users(self) -> dict[str, str]:
        """Return the passwords by name of those who may log in on the SASL listeners."""
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

    def start(self) -> None:
        """Start the server and return when it serves clients.

        Raises:
            Unavailable: it ended, or was not ready in time; the text has its last words.
        """
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Start the server's process without waiting for it."""
        if self.is_running:
            raise RuntimeError(f"node {self.id} runs already, as process {self.pid}")
        if not (self.data / "meta.properties").exists():
            self._format()
        command = self._java.command(
            "kafka.Kafka", str(self._properties), heap_mb=self._plan.settings.heap_mb, log="info"
        )
        if not self._java.archive.exists():
            # The first server to end writes down its classes, which halves later starts.
            command.insert(1, f"-XX:ArchiveClassesAtExit={self._training}")
        self._process = Process(command, self.log)

    def wait_ready(self, peers: int = 1) -> None:
        """Return when the server answers and tells of itself and that many brokers in all."""
        process = self._running()
        for _ in range(_START_POLLS):
            if self._is_ready(peers):
                return
            if (status := process.ended(_POLL)) is not None:
                raise self._failed(f"ended with status {status} before it was ready")
        raise self._failed("was not ready in time")

    def stop(self) -> None:
        """Let the server shut down in order; kill it if it takes too long."""
        if self._process is not None:
            self._process.stop(_STOP_GRACE)
            self._process = None
            self._keep_archive()

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        """Stop in order if it runs, then start with the same ports and data."""
        self.stop()
        self.start()

    def tool(
        self, name: str, *args: str, text: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command line tools; see `rookery.testing.java.TOOLS`."""
        return self._java.tool(name, *args, text=text, timeout=timeout)

    def last_words(self, lines: int = 40) -> str:
        """Return the end of the server's log."""
        text = self.log.read_text("utf-8", "replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    @property
    def _properties(self) -> Path:
        return self._node.folder / "server.properties"

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError(f"node {self.id} is not running: start it first")
        return self._process

    def _is_ready(self, peers: int) -> bool:
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
            # Moved by a copy in the same folder and a rename, so that nobody sees half of it.
            part = self._java.archive.with_suffix(f".{self.cluster_id}")
            shutil.copyfile(self._training, part)
            part.rename(self._java.archive)
            self._training.unlink()

    def _failed(self, what: str) -> Unavailable:
        return Unavailable(
            f"Kafka node {self.id} {what}; the end of {self.log}:\n{self.last_words()}"
        )


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
        self._scratch = None if folder else Path(tempfile.mkdtemp(prefix="kafka-"))
        plan = Plan.make(folder or self._scratch or Path(), 1, settings or KafkaSettings())
        super().__init__(plan, plan.nodes[0], java)

    def close(self) -> None:
        """Stop the server and remove its folder, unless the folder was given."""
        self.stop()
        if self._scratch is not None:
            shutil.rmtree(self._scratch)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class KafkaCluster:
    """Several servers that know each other; each is a broker and a voter."""

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
        self._scratch = None if folder else Path(tempfile.mkdtemp(prefix="kafka-"))
        plan = Plan.make(folder or self._scratch or Path(), count, settings or KafkaSettings())
        self.nodes = [KafkaNode(plan, node, java) for node in plan.nodes]
        """The servers; their ids are 1, 2, 3…"""

    @property
    def bootstrap(self) -> str:
        """Return the PLAINTEXT addresses of all servers, with commas between."""
        return ",".join(node.bootstrap for node in self.nodes)

    def node(self, number: int) -> KafkaNode:
        """Return the server with this broker id."""
        return self.nodes[number - 1]

    def start(self) -> None:
        """Start all servers that do not run; return when each of them tells of all."""
        try:
            for node in self.nodes:
                if not node.is_running:
                    node.launch()
            for node in self.nodes:
                node.wait_ready(peers=len(self.nodes))
        except BaseException:
            self.kill()
            raise

    def tool(
        self, name: str, *args: str, text: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command line tools; see `rookery.testing.java.TOOLS`."""
        return self.nodes[0].tool(name, *args, text=text, timeout=timeout)

    def kill(self) -> None:
        """End all servers as a crash would (SIGKILL)."""
        for node in self.nodes:
            node.kill()

    def close(self) -> None:
        """End all servers and remove their folder, unless the folder was given."""
        # Not in order: the last ones would wait for a majority of controllers that is gone.
        self.kill()
        if self._scratch is not None:
            shutil.rmtree(self._scratch)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
