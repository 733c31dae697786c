"""Reports dependencies that do not answer, in the log, in metrics and for health checks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from rookery import metrics
from rookery.errors import Error
from rookery.store.pendingcalls import PendingCalls, Stall

log = logging.getLogger(__name__)

LOOK_MS: Final = 1_000
"""The interval for calls of `StallWatch.look`."""

Probe = Callable[[], Awaitable[object]]


class StallMetrics:
    """The metrics of dependencies that do not answer."""

    __slots__ = ("seconds", "stalls")

    def __init__(self, server: str, registry: metrics.Registry = metrics.REGISTRY) -> None:
        """Declare the metrics; their names begin with `rookery_<server>_`."""
        self.seconds = registry.gauges(
            f"rookery_{server}_stalled_seconds",
            "How long a dependency has not answered a call; 0 while it answers.",
            ("dependency",),
        )
        self.stalls = registry.counters(
            f"rookery_{server}_stalls_total",
            "Times that a dependency stopped answering.",
            ("dependency",),
        )


class StallWatch:
    """Watches the calls to all dependencies of a process."""

    def __init__(
        self,
        dependencies: Mapping[str, PendingCalls],
        least_ms: int,
        stall_metrics: StallMetrics,
        probes: Mapping[str, Probe] | None = None,
    ) -> None:
        """Prepare to watch; `look` checks all dependencies once.

        Args:
            dependencies: their calls, by the names that are reported.
            least_ms: a call that waits this long counts as a stall.
            stall_metrics: counts the stalls.
            probes: make a small call. One is made after failures if no other call is pending:
                without clients, a recovery of the dependency would otherwise not be noticed.
        """
        self._metrics = stall_metrics
        self._dependencies = dependencies
        self._least_ms = least_ms
        self._probes = probes or {}
        self._stalled: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def problem(self, name: str) -> str:
        """Return the call without an answer and its age; empty while the dependency answers."""
        calls = self._dependencies.get(name)
        return str((calls.stall(self._least_ms) if calls is not None else None) or "")

    async def look(self) -> None:
        """Log each stall once when it begins and once when it ends; set the metrics."""
        for name, calls in self._dependencies.items():
            stall = calls.stall(self._least_ms)
            self._metrics.seconds.labels(name).value = stall.ms / 1000 if stall is not None else 0
            if stall is not None:
                if name not in self._stalled:
                    self._report_begin(name, calls, stall)
                self._stalled[name] = stall.ms
                self._probe(name, calls)
            elif name in self._stalled:
                self._report_end(name, calls, self._stalled.pop(name))

    def _report_begin(self, name: str, calls: PendingCalls, stall: Stall) -> None:
        self._metrics.stalls.labels(name).inc()
        log.warning(
            "the %s is stuck: %s",
            calls.name,
            stall,
            extra={"dependency": name, "duration_ms": stall.ms, "error": stall.error},
        )

    def _report_end(self, name: str, calls: PendingCalls, lasted_ms: int) -> None:
        log.info(
            "the %s answers again, after %.1f s",
            calls.name,
            lasted_ms / 1000,
            extra={"dependency": name, "duration_ms": lasted_ms},
        )

    async def stop(self) -> None:
        """Cancel the pending probes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _probe(self, name: str, calls: PendingCalls) -> None:
        probe = self._probes.get(name)
        if probe is None or not calls.is_idle:
            return
        task = asyncio.create_task(_ask(probe))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _ask(probe: Probe) -> None:
    with suppress(Error):
        await probe()
