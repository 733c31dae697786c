"""What is struck: three brokers over one folder, or three that share a store and an etcd."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from rookery.testing.backends import ETCD, ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.brokers import BRISK, Host, Hosts
from rookery.testing.ports import HOST, free_port
from tests.crash.hosts import kill_broker, kill_host
from tests.crash.killing import kill_all, kill_one
from tests.faults.history.cables import Cables

SQLITE: Final = "sqlite"
TARGETS: Final = (SQLITE, ETCD)
SESSION_SECONDS: Final = 3.0
"""After so long without a word a broker is taken for dead."""

_BROKERS: Final = 3
_FLAGS: Final = ("--session-timeout-ms", "3000", "--beat-interval-ms", "500")
# A member that could not say that it leaves holds up nobody for long.
_GROUPS: Final = (
    *("--consumer-groups-session-timeout-ms", "6000"),
    *("--consumer-groups-heartbeat-interval-ms", "1000"),
)


class Target(Protocol):
    """Brokers, the cables to them, and what can be done to them."""

    cables: Cables

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""

    def kill(self, chance: random.Random) -> str:
        """Kill something with -9, see to it that it runs again, and say what."""

    def pids(self) -> list[int]:
        """Return the processes that serve clients."""

    def words(self) -> str:
        """Return the end of what was logged."""


class Workers:
    """Three processes of one broker, with `sqlite` and `file`."""

    def __init__(self, folder: Path, front: int) -> None:
        self.broker = BrokerProcess(
            folder / "data",
            workers=_BROKERS,
            # Ids that stay: a client may ask for a coordinator by an id it has known for long.
            flags=[*_FLAGS, *_GROUPS, "--node-id", "1", "--advertise", f"{HOST}:{front}"],
        )
        self.bootstrap = f"{HOST}:{front}"
        back = self.broker.port
        self.cables = Cables({front + number: back + number for number in range(_BROKERS + 1)})

    def kill(self, chance: random.Random) -> str:
        """Kill one process, or all."""
        return chance.choice((kill_one, kill_one, kill_one, kill_all))(self.broker, chance)

    def pids(self) -> list[int]:
        """Return the processes that serve clients."""
        return self.broker.worker_pids()

    def words(self) -> str:
        """Return the end of what was logged."""
        return self.broker.words()[-10_000:]


class Cluster:
    """Three brokers with `etcd` and `s3`."""

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
        self.cables = Cables(dict(zip(fronts, backs, strict=True)))

    def kill(self, chance: random.Random) -> str:
        """Kill a host, or a broker alone."""
        return chance.choice((kill_host, kill_broker))(self.hosts, chance)

    def pids(self) -> list[int]:
        """Return the processes that serve clients."""
        return [host.pid for host in self.hosts if host.is_running]

    def words(self) -> str:
        """Return the end of what was logged."""
        return self.hosts.words()


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Target]:
    """Have a target run, with its cables."""
    target: Workers | Cluster
    with ExitStack() as stack:
        if kind == SQLITE:
            target = Workers(folder, _ports_in_a_row(_BROKERS + 1))
            stack.enter_context(target.broker)
        else:
            backend = stack.enter_context(ServerBackend(kind))
            target = Cluster(folder, backend, [free_port() for _ in range(_BROKERS)])
            stack.enter_context(target.hosts)
        stack.enter_context(target.cables)
        stack.callback(_wake, target)
        yield target


def _wake(target: Target) -> None:
    """Let nobody sleep at the end: a stopped process cannot be ended in order."""
    for pid in target.pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _ports_in_a_row(count: int) -> int:
    ports = [free_port()]
    while len(ports) < count:
        port = free_port()
        ports = [*ports, port] if port == ports[-1] + 1 else [port]
    return ports[0]
