"""One Kafka and the routes to it: direct, through our proxy, through Kroxylicious."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient
from objectparts.rig import children, cpu, make_topic, resident

from broker import full_java
from rookery.testing.java import FullJava
from rookery.testing.kafka import KafkaServer
from rookery.testing.kroxylicious import KroxyliciousServer, kroxylicious_java
from rookery.testing.properties import KafkaSettings
from rookery.testing.proxyprocess import ProxyProcess

DIRECT: Final = "direct"
OURS: Final = "ours"
PEER: Final = "Kroxylicious"


@dataclass(frozen=True)
class Route:
    """A way for clients to reach Kafka."""

    name: str
    bootstrap: str
    pid: int | None = None
    """The proxy's process; None if there is no proxy."""

    def cpu(self) -> float:
        """Return the CPU seconds that the proxy and its children have used."""
        return 0.0 if self.pid is None else cpu(self.pid)

    def resident_kb(self) -> float:
        """Return the memory of the proxy and its children in KB of 1000 bytes."""
        if self.pid is None:
            return 0.0
        return sum(map(resident, (self.pid, *children(self.pid)))) * 2**20 / 1000


@dataclass(frozen=True)
class Rig:
    """A Kafka that runs, and both proxies in front of it."""

    kafka: str
    java: FullJava
    """For Kafka's tools."""
    flags: Sequence[str]

    def make_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        make_topic(self.kafka, name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        admin = AdminClient({"bootstrap.servers": self.kafka, "log_level": 0})
        for deleted in admin.delete_topics([name]).values():
            deleted.result(60)

    @contextmanager
    def routes(self) -> Iterator[list[Route]]:
        """Start both proxies; return the routes, the direct one first."""
        machine_java = kroxylicious_java()
        java = FullJava(machine_java.program, machine_java.libs)
        with (
            ProxyProcess(self.kafka, self.flags) as ours,
            KroxyliciousServer(self.kafka, java=java) as peer,
        ):
            yield [
                Route(DIRECT, self.kafka),
                Route(OURS, ours.bootstrap, ours.pid),
                Route(PEER, peer.bootstrap, peer.pid),
            ]


@contextmanager
def start_rig(flags: Sequence[str]) -> Iterator[Rig]:
    """Start Kafka; the proxies follow with `Rig.routes`.

    Args:
        flags: further flags of our proxy.
    """
    properties = {
        "num.partitions": "4",
        # Records of a finished scenario give their disk space back at once.
        "file.delete.delay.ms": "100",
        "group.initial.rebalance.delay.ms": "0",
        # Encrypted records are larger, and librdkafka fills batches up to the default.
        "message.max.bytes": "4000000",
    }
    java = full_java()
    with KafkaServer(KafkaSettings(properties=properties, heap_mb=1024), java=java) as kafka:
        yield Rig(kafka.bootstrap, java, flags)
