"""This process's copy of the state: it follows the log, applies it, and proposes entries.

The outcome of an entry is known only when the entry is applied.

    propose ──► appender: queue ──► one entry ──► log.append ──┐
                                                               ▼
    other processes ──► follower: log.wait, log.read ──► apply, in order ──► outcomes, listeners
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rookery.clock import Clock
from rookery.cluster.appender import EntryAppender, Proposal
from rookery.cluster.entry import divide
from rookery.cluster.follower import Listener, LogFollower
from rookery.cluster.port import ClusterLog
from rookery.cluster.recomputation import LoadSnapshot
from rookery.cluster.state.state import Outcome, State
from rookery.errors import Unavailable
from rookery.wire.buffer import Buffer
from rookery.wire.message import Message


class Replica:
    """The state as of the last entry applied here."""

    def __init__(
        self,
        cluster_log: ClusterLog,
        clock: Clock,
        load_snapshot: LoadSnapshot | None = None,
    ) -> None:
        """Start with an empty state; `open` brings it up to date.

        Args:
            cluster_log: the log to follow.
            clock: stamps the entries.
            load_snapshot: loads the newest snapshot, at start and after the log was trimmed. Its
                argument is the lowest entry that the snapshot must cover.
        """
        self._follower = LogFollower(cluster_log, load_snapshot)
        self._follower.when_jumped = self._on_jumped
        self._follower.when_failed = self._on_failed
        self._appender = EntryAppender(self._follower, clock)
        self.when_jumped: Callable[[], None] = lambda: None
        """Called when a snapshot replaced the state: outcomes of entries in flight are unknown."""
        self.when_failed: Callable[[Exception], None] = lambda _: None
        """Called once if the replica stops; the process must exit."""
        self.before_propose: Callable[[Sequence[Message]], None] = lambda _: None
        """Called with events before they are proposed; it may propose events that they depend
        on."""

    async def open(self, *, follow: bool = True) -> None:
        """Start from the newest snapshot, apply the log after it, then follow the log.

        Without `follow`, the replica advances only on `barrier` and with its own proposals.
        """
        await self._follower.open(follow=follow)

    async def close(self) -> None:
        """Stop following; pending proposals fail with `Unavailable`."""
        await self._follower.close()
        await self._appender.close()
        self._appender.fail_all(Unavailable("the broker stops"))

    # Views of the parts.

    @property
    def state(self) -> State:
        """The state as of the last entry applied here. A jump to a snapshot replaces it."""
        return self._follower.state

    @property
    def incarnation(self) -> int:
        """The incarnation under which this process writes; 0 if it has none."""
        return self._follower.incarnation

    @property
    def began_ms(self) -> int:
        """When the last entry of this process was made, on its monotonic clock."""
        return self._appender.began_ms

    @property
    def failure(self) -> Exception | None:
        """Why this replica has stopped permanently; None while it works."""
        return self._follower.failure

    @property
    def trouble(self) -> str:
        """Why the cluster log was last unreachable; empty while it is reachable."""
        return self._follower.trouble

    @property
    def log_bytes(self) -> int:
        """The size of the entries that were applied here, which a restart would have to read."""
        return self._follower.log_bytes

    @property
    def opened_at(self) -> int:
        """The entry of the snapshot that `open` started from: all later entries had to be read."""
        return self._follower.opened_at

    @property
    def waiting(self) -> int:
        """The number of proposals that are not in an entry yet."""
        return self._appender.waiting

    def digest_at(self, number: int) -> int | None:
        """Return this process's digest after a recent entry; None if the entry is too old."""
        return self._follower.digests.at(number)

    async def lag(self) -> int:
        """Return the number of log entries that are not applied here yet.

        Raises:
            Unavailable: the log is unreachable.
        """
        return max(0, await self._follower.log.head() - self.state.applied)

    # Following.

    def listen(self, listener: Listener) -> None:
        """Register a listener that is called after every applied entry."""
        self._follower.listen(listener)

    def unlisten(self, listener: Listener) -> None:
        """Remove a listener."""
        self._follower.unlisten(listener)

    async def barrier(self) -> None:
        """Return when every entry that was in the log at the time of the call is applied.

        One request for the log's head serves all callers that arrived before it started.
        """
        await self._follower.barrier()

    # Proposing.

    async def register(self, event: Message) -> int:
        """Join or rejoin the cluster; return the new incarnation."""
        return await self._appender.register(event)

    async def create_cluster(self, event: Message) -> None:
        """Write the log's first entry, if there is none."""
        await self._appender.append_as_stranger([event])

    def propose(
        self, events: Sequence[Message], payload: Sequence[Buffer] = ()
    ) -> asyncio.Future[list[Outcome]]:
        """Put events into the next entry; the future returns their outcomes once it is applied.

        Positions of a `BatchesCommitted` without an object are positions in the payload given here.

        The future fails with IncarnationFenced, or with Unavailable if the outcome is unknown.

        Raises:
            ValueError: they do not fit into an entry; `propose_all` divides a list of events.
        """
        self.before_propose(events)
        proposal = Proposal(events, payload)
        failure = self._follower.failure
        if failure is None:
            self._appender.add(proposal)
        else:
            proposal.future.set_exception(failure)
        return proposal.future

    def propose_all(self, events: Sequence[Message]) -> asyncio.Future[list[Outcome]]:
        """Propose a list of any length, divided by size; the future returns all outcomes in order.

        Each part goes into one entry. The order is preserved, also relative to proposals made
        before and after this call. The list is NOT atomic: one part may count while another does
        not. If a part fails, the future fails with the first error once every part is settled.

        Raises:
            ValueError: a single event is larger than an entry; nothing was proposed.
        """
        # All parts first: an event that is too large is found before anything is proposed.
        parts = list(divide(events))
        return asyncio.ensure_future(_join([self.propose(part) for part in parts]))

    # The outcome of proposals when following is interrupted.

    def _on_jumped(self) -> None:
        # The entry in flight keeps its sequence: see `EntryAppender._is_settled`.
        error = Unavailable("this broker had fallen behind the cluster's log")
        self._appender.fail_all(error)
        self.when_jumped()

    def _on_failed(self, error: Exception) -> None:
        self._appender.fail_all(error)
        self.when_failed(error)


async def _join(parts: Sequence[asyncio.Future[list[Outcome]]]) -> list[Outcome]:
    """Return the outcomes of all parts, or raise the first error."""
    joined: list[Outcome] = []
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        joined += result
    return joined
