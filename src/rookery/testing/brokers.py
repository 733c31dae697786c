"""Brokers on several "hosts": processes that share a store and a cluster log, and no folder.

    with Hosts(3, store=..., cluster=..., folder=tmp_path) as hosts:
        hosts[0].kill()

A host's broker may keep a caretaker, a process of its own, which can be harmed apart from it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rookery.testing.broker import BrokerProcess, wait_gone

BRISK: Final = (
    *("--upkeep-interval-ms", "500", "--rewrite-merge-age-ms", "300"),
    *("--rewrite-segment-bytes", "200000", "--delete-delay-ms", "500"),
    *("--orphan-interval-ms", "2000", "--snapshot-entries", "200"),
    # Otherwise a round would last as long as clients write.
    *("--rewrite-round-bytes", "1000000"),
    *("--session-timeout-ms", "3000", "--beat-interval-ms", "500"),
)
"""Settings with which all maintenance of a log happens within seconds."""

_CARETAKER: Final = b"rookery.broker.storage.caretaker"


class Host(BrokerProcess):
    """One broker, alone on its host; its state is in the store and the cluster log."""

    def __init__(self, name: Path, *, store: str, cluster: str = "", flags: Sequence[str] = ()):
        """Choose ports; `start` runs it.

        Args:
            name: the name of its log file, which is its only file there.
            store: the URL of the store.
            cluster: the URL of the cluster log; if empty, it is in the store.
            flags: further settings.
        """
        where = ["--store", store]
        where += ["--cluster", cluster] if cluster else []
        super().__init__(name, flags=[*where, *flags])
        self._caretakers: set[int] = set()

    @property
    def is_running(self) -> bool:
        """Whether its broker was started, and the test has not ended it."""
        return self._process is not None

    def caretaker_pids(self) -> list[int]:
        """Return the ids of its caretakers, also of those whose broker was killed."""
        if self._process is not None:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
            self._caretakers.update(int(pid) for pid in children.read_text().split())
        self._caretakers = {caretaker for caretaker in self._caretakers if _is_caretaker(caretaker)}
        return sorted(self._caretakers)

    def kill(self) -> None:
        """End the broker and its caretakers at once, like a power failure of the host."""
        # Listed first: a process without its parent is harder to find.
        self.caretaker_pids()
        if self._process is not None:
            super().kill()
        self.kill_caretakers()

    def kill_broker(self) -> None:
        """End the broker alone; its caretaker must detect that."""
        self.caretaker_pids()
        super().kill()

    def kill_caretakers(self) -> list[int]:
        """End the caretakers alone; return their ids."""
        pids = self.caretaker_pids()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            wait_gone(pid)
        return pids

    def pause(self) -> None:
        """Suspend the broker; its caretaker continues."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End `pause`."""
        self.signal(signal.SIGCONT)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class Hosts:
    """Several hosts of one cluster."""

    def __init__(
        self, count: int, *, store: str, folder: Path, cluster: str = "", flags: Sequence[str] = ()
    ) -> None:
        """Choose ports; entering a `with` block starts all of them."""
        names = [folder / f"host-{number}" for number in range(1, count + 1)]
        self.hosts = [Host(name, store=store, cluster=cluster, flags=flags) for name in names]
        self.store = store
        self.cluster = cluster

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def __len__(self) -> int:
        return len(self.hosts)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return ",".join(host.bootstrap for host in self.hosts)

    def start(self) -> None:
        """Start all hosts that do not run, at the same time."""
        self._each(lambda host: None if host.is_running else host.start())

    def stop(self) -> None:
        """Stop the running hosts in order, one after the other."""
        for host in self.hosts:
            if host.is_running:
                host.stop()

    def kill(self) -> None:
        """End all hosts at once."""
        self._each(Host.kill)

    def caretaker_pids(self) -> list[int]:
        """Return the ids of all caretakers."""
        return [pid for host in self.hosts for pid in host.caretaker_pids()]

    def words(self, last: int = 5_000) -> str:
        """Return the end of each host's output and log."""
        return "\n".join(f"--- {host.log}\n{host.words()[-last:]}" for host in self.hosts)

    def _each(self, act: Callable[[Host], object]) -> None:
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            for done in [pool.submit(act, host) for host in self.hosts]:
                done.result()


def _is_caretaker(pid: int) -> bool:
    """Return whether a process is a live caretaker; ids are reused."""
    try:
        return _CARETAKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
