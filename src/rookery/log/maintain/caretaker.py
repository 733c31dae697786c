"""The caretaker: rounds of maintenance that one process does for the log of all brokers.

    retention ──► merges and segments ──► compaction ──► snapshot, trim ──► sweep

Every step proposes events and does only what an applied event allows. Two processes that both act
as the caretaker waste work but do no harm.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Protocol

from rookery.clock import Clock
from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.port import ClusterLog
from rookery.cluster.replica import Replica
from rookery.log.maintain import snapshots
from rookery.log.maintain.plan import Lag
from rookery.log.maintain.quarantine import Quarantine
from rookery.log.maintain.retention import Retention
from rookery.log.maintain.sweeper import Sweeper
from rookery.log.settings import CareSettings
from rookery.store.port import Store
from rookery.store.wrappers import counts


class RewriteWorker(Protocol):
    """A worker that moves batches into better objects."""

    name: ClassVar[str]
    """The name of the step that it performs in a round."""
    quarantine: Quarantine
    """The items that it cannot process."""

    async def run(self, before_entry: int) -> int:
        """Do the pending work and return the number of bytes rewritten.

        Payloads of entries up to `before_entry` are all moved out of their entries.
        """

    def lag(self) -> Lag:
        """Return the backlog."""


@dataclass(slots=True)
class CareRound:
    """The result of one round."""

    retained: int = 0
    expired_producers: int = 0
    rewritten_bytes: int = 0
    lag_bytes: int = 0
    lag_ms: int = 0
    snapshot: int = 0
    condemned: int = 0
    deleted: int = 0
    requests: dict[str, float] = field(default_factory=dict)
    """Requests to the store by kind, since the process began."""
    failures: int = 0
    """Pieces of work that failed, since the process started."""
    quarantined: int = 0
    """Partitions, objects, rows and steps that cannot be processed at the moment."""
    problems: list[str] = field(default_factory=list)
    """Descriptions of these items with their reasons; only the first ones if there are many."""

    def as_json(self) -> dict[str, object]:
        """Return it for the broker that runs this caretaker."""
        return asdict(self)


class Caretaker:
    """Runs maintenance rounds."""

    def __init__(
        self,
        replica: Replica,
        cluster_log: ClusterLog,
        store: Store,
        clock: Clock,
        settings: CareSettings,
    ) -> None:
        """Prepare for rounds; `employ` sets the workers."""
        self._replica = replica
        self._log = cluster_log
        self._store = store
        self._clock = clock
        self._settings = settings
        self._rewriters: list[RewriteWorker] = []
        self._steps = Quarantine(clock)
        # Not the applied entry: a process that restarts often would never write a snapshot.
        self.snapshot = replica.opened_at
        """The entry of the newest snapshot."""
        self._confirmed = 0
        self._trimmed = 0
        self._snapshot_bytes = 0
        self._snapshot_ms = clock.monotonic_ms()
        self._topics_seen = self._topics()
        # A state that was read from a snapshot has this version.
        self._security_seen: tuple[int, ...] = (0, 0, 0, 0)

    def employ(self, retention: Retention, sweeper: Sweeper, *rewriters: RewriteWorker) -> None:
        """Set the workers."""
        self._retention = retention
        self._sweeper = sweeper
        self._rewriters = list(rewriters)

    def confirm(self, snapshot: int) -> None:
        """Record that another process has read a snapshot back; entries up to it may be trimmed."""
        self._confirmed = max(self._confirmed, snapshot)

    async def is_behind(self) -> bool:
        """Catch up with the log and return whether a snapshot is due before the next round."""
        await self._replica.barrier()
        return self._is_snapshot_due()

    async def round(self) -> CareRound:
        """Do one round of maintenance; a step that fails does not stop the others.

        Raises:
            Unavailable: the cluster log cannot be reached.
            IncarnationFenced: the cluster has expired this process.
        """
        done = CareRound()
        await self._replica.barrier()
        with self._step("retention"):
            done.retained = await self._retention.retain()
        with self._step("expiry of producers"):
            done.expired_producers = await self._retention.expire_producers(
                self._settings.producer_expiration_ms
            )
        is_snapshot_due = self._is_snapshot_due()
        # Entries can be trimmed up to the first one whose payload is still referenced.
        before = self._replica.state.applied if is_snapshot_due else 0
        for rewriter in self._rewriters:
            with self._step(rewriter.name):
                done.rewritten_bytes += await rewriter.run(before)
        if is_snapshot_due:
            with self._step("snapshot"):
                await self._take_snapshot()
            with self._step("removal of old snapshots"):
                await snapshots.prune(self._store)
        with self._step("trim of the cluster log"):
            await self._trim()
        done.snapshot = self.snapshot
        with self._step("deletion of objects"):
            done.deleted = await self._sweeper.delete(self.snapshot)
        with self._step("search for unused objects"):
            done.condemned = await self._sweeper.condemn()
        self._report(done)
        return done

    def _step(self, name: str) -> AbstractContextManager[None]:
        """Record why a step failed and continue with the next step."""
        return self._steps.guard((name,), f"upkeep: {name}", passes=(IncarnationFenced,))

    def _report(self, done: CareRound) -> None:
        done.requests = counts()
        lags = [rewriter.lag() for rewriter in self._rewriters]
        done.lag_bytes = sum(lag.bytes for lag in lags)
        done.lag_ms = max((lag.age_ms for lag in lags), default=0)
        cases = [self._steps, self._retention.quarantine, self._sweeper.quarantine]
        cases += [rewriter.quarantine for rewriter in self._rewriters]
        done.failures = sum(case.failures for case in cases)
        done.quarantined = sum(map(len, cases))
        done.problems = [problem for case in cases for problem in case.report()]

    def _is_snapshot_due(self) -> bool:
        settings, replica = self._settings, self._replica
        if self._steps.holds(("snapshot",)):
            return False  # the last one failed: without a pause, rounds would follow without end
        if replica.state.applied - self.snapshot >= settings.snapshot_entries:
            return True
        if replica.log_bytes - self._snapshot_bytes >= settings.snapshot_bytes:
            return True
        age = self._clock.monotonic_ms() - self._snapshot_ms
        return age >= settings.snapshot_age_ms and self._is_snapshot_wanted()

    def _is_snapshot_wanted(self) -> bool:
        """Whether a snapshot is needed.

        Objects wait for deletion, or topics or access control have changed. A recovery finds the
        latter nowhere else.
        """
        condemned = self._replica.state.objects.condemned
        is_awaited = any(entry > self.snapshot for entry in condemned.values())
        version = self._replica.state.security.version
        has_changed = self._topics() != self._topics_seen or version != self._security_seen
        return is_awaited or has_changed

    def _topics(self) -> dict[bytes, tuple[int, dict[str, str]]]:
        return {
            topic.id: (len(topic.partitions), dict(topic.configs))
            for topic in self._replica.state.topics
        }

    async def _take_snapshot(self) -> None:
        topics, version = self._topics(), self._replica.state.security.version
        self._snapshot_bytes = self._replica.log_bytes
        self._snapshot_ms = self._clock.monotonic_ms()
        self.snapshot = await snapshots.save(self._store, self._replica.state)
        self._topics_seen, self._security_seen = topics, version

    async def _trim(self) -> None:
        """Trim entries that a confirmed snapshot covers and whose payloads are not referenced."""
        oldest_payload = self._replica.state.objects.oldest_payload
        before = min(self._confirmed + 1, oldest_payload or self._confirmed + 1)
        if before > self._trimmed:
            await self._log.trim(before)
            self._trimmed = before
