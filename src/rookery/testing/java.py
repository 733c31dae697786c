"""Kafka's Java programs as processes: the server, and its command line tools."""

from __future__ import annotations

import os
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError
from rookery.testing.jars import jars, program

_TOOLS: Final = "org.apache.kafka.tools"
TOOLS: Final = {
    "kafka-acls": f"{_TOOLS}.AclCommand",
    "kafka-broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "kafka-cluster": f"{_TOOLS}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-console-share-consumer": f"{_TOOLS}.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "kafka-delegation-tokens": f"{_TOOLS}.DelegationTokenCommand",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-dump-log": f"{_TOOLS}.DumpLogSegments",
    "kafka-e2e-latency": f"{_TOOLS}.EndToEndLatency",
    "kafka-features": f"{_TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
    "kafka-groups": f"{_TOOLS}.GroupsCommand",
    "kafka-leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": f"{_TOOLS}.ReplicaVerificationTool",
    "kafka-share-groups": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": f"{_TOOLS}.StreamsResetter",
    "kafka-streams-groups": f"{_TOOLS}.streams.StreamsGroupCommand",
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-transactional-message-copier": f"{_TOOLS}.TransactionalMessageCopier",
    "kafka-transactions": f"{_TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}
"""The main class of each of Kafka's command line tools."""

_COMPILER: Final = "jdk.compiler/com.sun.tools.javac.Main"
_LOGGING: Final = Path(__file__).parent / "maven" / "log4j2.properties"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that has Kafka's jars on its class path."""

    program: str
    libs: Path

    @classmethod
    def find(cls, cache: Path | None = None) -> Java:
        """Return the machine's Java with Kafka's jars, fetched if need be."""
        return cls(program("java"), jars(cache))

    @property
    def archive(self) -> Path:
        """Name the file of preloaded classes: with it, a server starts in half the time."""
        # It fits only the Java that wrote it, so that Java's place and age are in the name.
        path = Path(self.program).resolve()
        mark = zlib.crc32(f"{path} {path.stat().st_mtime_ns}".encode())
        return self.libs / f"classes-{mark:08x}.jsa"

    def compile(self, source: Path, classes: Path) -> None:
        """Compile a program against Kafka's jars into a folder, for `command` to run.

        Raises:
            ConfigError: the compiler is not there, or does not like the program.
        """
        # As a module, since Debian's JRE has the compiler too, only not under the name of javac.
        compiler = (self.program, "-XX:TieredStopAtLevel=1", "-m", _COMPILER)
        options = ("-Xlint:all", "-Werror", "-cp", self._class_path(), "-d", str(classes))
        done = subprocess.run(
            [*compiler, *options, str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ConfigError(
                f"{source} could not be compiled by {self.program} (where this Java has no "
                f"compiler, install default-jdk-headless):\n{done.stdout}{done.stderr}"
            )

    def command(
        self,
        main: str,
        *args: str,
        heap_mb: int = 256,
        log: str = "error",
        classes: Path | None = None,
    ) -> list[str]:
        """Return the command line that runs a main class, tuned to start quickly.

        Args:
            main: the class's full name.
            args: its arguments.
            heap_mb: how much memory Java may use for objects.
            log: which events it prints, from this level up.
            classes: a folder of classes in addition to Kafka's, as `compile` creates it.
        """
        path = self._class_path(classes)
        flags = [f"-Xmx{heap_mb}m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        if self.archive.exists():
            flags += [f"-XX:SharedArchiveFile={self.archive}", "-Xlog:disable"]
        settings = [f"-Dlog4j2.configurationFile={_LOGGING}", f"-Drookery.log.level={log}"]
        return [self.program, *flags, *settings, "-cp", path, main, *args]

    def _class_path(self, classes: Path | None = None) -> str:
        # Sorted and written out: a class archive is refused if the class path differs, unless
        # it only continues where the archive's own ends.
        path = sorted(str(jar) for jar in self.libs.glob("*.jar"))
        return os.pathsep.join([*path, str(classes)] if classes else path)

    def tool(
        self, name: str, *args: str, text: str | None = None, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command line tools (see `TOOLS`) and return what it said.

        Args:
            name: as Kafka names its script, without `.sh`.
            args: its arguments; nothing is added, not even the server's address.
            text: what it reads from standard input.
            timeout: seconds until it is stopped.
        """
        command = self.command(TOOLS[name], *args)
        return subprocess.run(
            command, input=text or "", capture_output=True, text=True, timeout=timeout, check=False
        )


class FullJava(Java):
    """Java as it is for production: the test kit's is tuned to start quickly, not to run fast."""

    def command(
        self,
        main: str,
        *args: str,
        heap_mb: int = 1024,
        log: str = "error",
        classes: Path | None = None,
    ) -> list[str]:
        """Return the command line with both compilers and the default collector."""
        heap = max(heap_mb, 1024)
        short = super().command(main, *args, heap_mb=heap, log=log, classes=classes)
        tuned = ("-XX:TieredStopAtLevel", "-XX:+UseSerialGC", "-XX:SharedArchiveFile", "-Xlog")
        return [word for word in short if not word.startswith(tuned)]
