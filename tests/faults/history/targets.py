"""Targets of faults: brokers of Rookery or Kafka, alone or with a proxy."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from rookery.testing.backends import ETCD, ServerBackend
from rookery.testing.broker import BrokerProcess, wait_gone
from rookery.testing.brokers import BRISK, Host, Hosts
from rookery.testing.kafka import KafkaCluster
from rookery.testing.ports import HOST, free_port
from rookery.testing.probe import is_serving
from rookery.testing.properties import KafkaSettings
from rookery.testing.proxyprocess import ProxyProcess
from rookery.testing.wait import wait_until
from tests.crash.hosts import kill_broker, kill_host
from tests.crash.killing import kill_all, kill_one
from tests.faults.history.cables import Cable, Cables

_BROKERS: Final = 3
SQLITE: Final = "sqlite"
KAFKA: Final = "kafka"
MODES: Final[Mapping[str, int]] = {"mirror": _BROKERS + 1, "proxy": 0}
"""The number of ports for brokers, for each kind of nodes that a proxy can have."""
PROXIED: Final = tuple(f"{name}-{mode}" for name in (SQLITE, KAFKA) for mode in MODES)
"""Targets with a proxy."""
TARGETS: Final = (SQLITE, ETCD, KAFKA, *PROXIED)
SESSION_SECONDS: Final = 3.0
"""The time without a heartbeat after which a broker counts as dead."""

# All of 127.0.0.0/8 is the loopback interface: a port is the same before and after a cable.
_FRONT: Final = "127.0.0.2"
_MIDDLE: Final = "127.0.0.3"
_FLAGS: Final = ("--session-timeout-ms", "3000", "--beat-interval-ms", "500")
# A member that could not leave in order delays no other member for long.
_GROUPS: Final = (
    *("--consumer-groups-session-timeout-ms", "6000"),
    *("--consumer-groups-heartbeat-interval-ms", "1000"),
)
_KAFKA_GROUPS: Final = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
}


class Target(Protocol):
    """Brokers, the cables to them, and the faults that they support."""

    cables: Cables

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""

    @property
    def rejects_reused_sequences(self) -> bool:
        """Whether a batch with the sequences of an earlier transaction is refused."""

    def kill(self, chance: random.Random) -> str:
        """Kill something with -9, make it run again, and return its name."""

    def restart(self) -> str:
        """Stop each broker in order, one after the other, and start it again; return its name."""

    def pids(self) -> list[int]:
        """Return the processes that serve clients."""

    def words(self) -> str:
        """Return the end of what was logged."""


class Workers:
    """Three processes of one broker, with `sqlite` and `file`."""

    rejects_reused_sequences = True

    def __init__(self, folder: Path, front: int) -> None:
        self.broker = BrokerProcess(
            folder / "data",
            workers=_BROKERS,
            # Ids that stay: a client may ask for a coordinator by an id it has known for long.
            flags=[*_FLAGS, *_GROUPS, "--node-id", "1", "--advertise", f"{HOST}:{front}"],
        )
        self.bootstrap = f"{HOST}:{front}"
        back = self.broker.port
        self.cables = Cables(Cable(front + number, back + number) for number in range(_BROKERS + 1))

    def kill(self, chance: random.Random) -> str:
        """Kill one process, or all."""
        return chance.choice((kill_one, kill_one, kill_one, kill_all))(self.broker, chance)

    def restart(self) -> str:
        """Stop each worker in order; the supervisor starts another."""
        pids = self.broker.worker_pids()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            wait_gone(pid)
            wait_until(self._is_whole, "a worker in its place", accepts=bool)
        return f"{len(pids)} workers"

    def _is_whole(self) -> bool:
        ports = range(self.broker.port + 1, self.broker.port + _BROKERS + 1)
        return len(self.broker.worker_pids()) == _BROKERS and all(map(is_serving, ports))

    def pids(self) -> list[int]:
        """Return the processes that serve clients."""
        return self.broker.worker_pids()

    def words(self) -> str:
        """Return the end of what was logged."""
        return self.broker.words()[-10_000:]


class Cluster:
    """Three brokers with `etcd` and `s3`."""

    rejects_reused_sequences = True

    def __init__(self, folder: Path, backend: ServerBackend, fronts: list[int]) -> None:
        store, cluster = backend.store("history"), backend.cluster("history")
        self.hosts = Hosts(0, store=store, cluster=cluster, folder=folder)
        self.hosts.hosts = [
            Host(
                folder / f"host-{front}",
                store=store,
                cluster=cluster,
                flags=[
                    *BRISK,
                    *_GROUPS,
                    "--node-id",
                    str(number),
                    "--advertise",
                    f"{HOST}:{front}",
                ],
            )
            for number, front in enumerate(fronts, 1)
        ]
        self.bootstrap = ",".join(f"{HOST}:{front}" for front in fronts)
        backs = [host.port for host in self.hosts]
        self.cables = Cables(map(Cable, fronts, backs))

    def kill(self, chance: random.Random) -> str:
        """Kill a host, or a broker alone."""
        return chance.choice((kill_host, kill_broker))(self.hosts, chance)

    def restart(self) -> str:
        """Stop each broker in order, and start it again."""
        for host in self.hosts:
            host.stop()
            host.start()
        return f"{len(self.hosts)} hosts"

    def pids(self) -> list[int]:
        """Return the processes that serve clients."""
        return [host.pid for host in self.hosts if host.is_running]

    def words(self) -> str:
        """Return the end of what was logged."""
        return self.hosts.words()


class KafkaTarget:
    """Apache Kafka."""

    # It acknowledges the batch as a duplicate: `test_kafka_acknowledges_reused_sequences`.
    rejects_reused_sequences = False

    def __init__(self, folder: Path, count: int) -> None:
        settings = KafkaSettings(properties=_KAFKA_GROUPS, advertised_host=_MIDDLE)
        self.cluster = KafkaCluster(count, settings, folder=folder)
        ports = [node.port() for node in self.cluster.nodes]
        self.bootstrap = ",".join(f"{_MIDDLE}:{port}" for port in ports)
        self.cables = Cables(Cable(port, port, _MIDDLE) for port in ports)

    def kill(self, chance: random.Random) -> str:
        """Kill a server, and start it again."""
        node = chance.choice(self.cluster.nodes)
        node.kill()
        node.start()
        return f"Kafka {node.id}"

    def restart(self) -> str:
        """Stop each server in order, and start it again."""
        for node in self.cluster.nodes:
            node.restart()
        return f"{len(self.cluster.nodes)} servers"

    def pids(self) -> list[int]:
        """Return the processes that serve clients."""
        return [node.pid for node in self.cluster.nodes if node.is_running]

    def words(self) -> str:
        """Return the end of what was logged."""
        return "\n".join(node.last_words() for node in self.cluster.nodes)


class Proxied:
    """A proxy before another target, with cables on both sides of it."""

    def __init__(self, folder: Path, upstream: Target, nodes: int) -> None:
        """Prepare.

        Args:
            folder: the folder for the proxy's log.
            upstream: what clients reach through the proxy; its cables are those of the proxy.
            nodes: the number of its ports for brokers; 0 for broker nodes.
        """
        self.upstream = upstream
        self.rejects_reused_sequences = upstream.rejects_reused_sequences
        self._kills = 0
        self.proxy = ProxyProcess(
            upstream.bootstrap,
            ("--advertise", _FRONT, "--refresh-interval-ms", "1000"),
            folder=folder,
            nodes=nodes,
        )
        self.bootstrap = f"{_FRONT}:{self.proxy.port}"
        fronts = [Cable(port, port, _FRONT) for port in self.proxy.ports]
        self.cables = Cables([*fronts, *upstream.cables.all])

    def kill(self, chance: random.Random) -> str:
        """Kill the proxy and one of its brokers by turns, so that a short run has both."""
        self._kills += 1
        if self._kills % 2 == 0:
            return self.upstream.kill(chance)
        self.proxy.kill()
        self.proxy.start()
        return "the proxy"

    def restart(self) -> str:
        """Restart the brokers one after the other, then the proxy."""
        done = self.upstream.restart()
        self.proxy.restart()
        return f"{done}, the proxy"

    def pids(self) -> list[int]:
        """Return the processes that serve clients."""
        others = self.upstream.pids()
        # As often as there are brokers: a random choice takes the proxy half of the time.
        own = [self.proxy.pid] * max(1, len(others)) if self.proxy.is_running else []
        return [*own, *others]

    def words(self) -> str:
        """Return the end of what was logged."""
        return f"{self.upstream.words()}\n{self.proxy.last_words(200)}"


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Target]:
    """Run a target with its cables."""
    name, _, mode = kind.partition("-")
    with ExitStack() as stack:
        target = _start(name, folder, stack)
        if not mode:
            stack.enter_context(target.cables)
        else:
            target = Proxied(folder / "proxy", target, MODES[mode])
            stack.enter_context(target.cables)
            stack.enter_context(target.proxy)
        stack.callback(_wake, target)
        yield target


def _start(name: str, folder: Path, stack: ExitStack) -> Target:
    """Start brokers; their cables are not connected yet."""
    if name == SQLITE:
        workers = Workers(folder, _ports_in_a_row(_BROKERS + 1))
        stack.enter_context(workers.broker)
        return workers
    if name == KAFKA:
        # Alone, a broker that restarts has no leader for a moment, and skips markers (docs/faults).
        kafka = KafkaTarget(folder / "kafka", _BROKERS)
        stack.enter_context(kafka.cluster)
        return kafka
    backend = stack.enter_context(ServerBackend(name))
    cluster = Cluster(folder, backend, [free_port() for _ in range(_BROKERS)])
    stack.enter_context(cluster.hosts)
    return cluster


def _wake(target: Target) -> None:
    """Resume all processes at the end: a suspended process cannot stop in order."""
    for pid in target.pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _ports_in_a_row(count: int) -> int:
    ports = [free_port()]
    while len(ports) < count:
        port = free_port()
        ports = [*ports, port] if port == ports[-1] + 1 else [port]
    return ports[0]
