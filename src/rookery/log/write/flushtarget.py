"""Flush targets, which make a writer's flushes durable: a journal, or objects in a store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rookery.cluster.entry import MAX_PAYLOAD_BYTES
from rookery.cluster.state.state import AppendOutcome
from rookery.errors import Unavailable
from rookery.log.maintain.reclaim import Reclaimer
from rookery.log.write.journal import FlushPosition, Journal
from rookery.records.batches import BatchHeader
from rookery.store.pendingcalls import PendingCalls


class CheckedBatch(NamedTuple):
    """A checked batch with its partition, bytes and header."""

    topic_id: bytes
    partition: int
    data: memoryview
    header: BatchHeader
    joins_transaction: bool = False
    """Whether a transactional batch adds its partition to the transaction by itself (KIP-890)."""


@dataclass(frozen=True, slots=True)
class FlushSettings:
    """How much is flushed together, and how many flushes may be in progress."""

    inline_bytes: int = MAX_PAYLOAD_BYTES
    """A flush up to this size is stored in the entry of the cluster log."""
    flush_bytes: int = 16 * 1024 * 1024
    """Maximum size of a flush: a larger one only adds latency."""
    lanes: int = 1
    """Number of concurrent writes; the journal groups appends itself."""
    interval_ms: int = 0
    """While a write is in progress, another small one starts only after this time."""


class FlushTarget(Protocol):
    """Makes flushes durable."""

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Make batches durable, one after the other; return their location.

        Raises:
            Unavailable: they are not durable, or it is not known.
        """

    def settle(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Receive the offsets that the batches of an object were given."""

    def doubt(self, identity: int) -> None:
        """Receive the information that the commit of an object has an unknown outcome."""

    @property
    def failure(self) -> str | None:
        """Why the last write failed and what to do; None while writing works."""

    @property
    def journal(self) -> Journal | None:
        """The journal that flushes are appended to; None if they go elsewhere."""

    async def look_after(self) -> None:
        """Do periodic maintenance, and check whether a failed medium works again."""

    async def finish(self) -> None:
        """Write pending information; nothing more will be written after this."""

    async def close(self) -> None:
        """Release all resources."""


class NoFlushTarget:
    """A placeholder until the broker has joined the cluster."""

    @property
    def journal(self) -> Journal | None:
        """Have none."""
        return None

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Reject the write."""
        raise Unavailable(f"this broker has not joined the cluster; {len(batches)} batches wait")

    def settle(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Ignore the offsets."""

    def doubt(self, identity: int) -> None:
        """Ignore the object."""

    @property
    def failure(self) -> str | None:
        """Have none."""
        return None

    async def look_after(self) -> None:
        """Do nothing."""

    async def finish(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class JournalTarget(NoFlushTarget):
    """Appends flushes to a journal."""

    def __init__(
        self,
        journal: Journal,
        calls: PendingCalls | None = None,
        reclaimer: Reclaimer | None = None,
    ) -> None:
        self._journal = journal
        self._calls = calls or PendingCalls("journal")
        self._reclaimer = reclaimer

    @property
    def journal(self) -> Journal:
        """The journal that flushes are appended to."""
        return self._journal

    @property
    def failure(self) -> str | None:
        """Why the last append failed and what to do; None while writing works."""
        return self.journal.failure

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Make batches durable, one after the other; return their location."""
        with self._calls.call("a write"):
            written = await self.journal.append([batch.data for batch in batches])
        if self._reclaimer is not None:
            self._reclaimer.begin_commit(written.object_id)
        return written

    def settle(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Record that a commit is settled."""
        del outcomes
        self.doubt(identity)

    def doubt(self, identity: int) -> None:
        """Record that no commit is in progress; one that takes effect later has rows or is void."""
        if identity and self._reclaimer is not None:
            self._reclaimer.end_commit(identity)

    async def look_after(self) -> None:
        """Check whether a failed disk works again, and reclaim space of the journal."""
        if self.journal.failure:
            with suppress(Unavailable):
                await self.journal.append([b"a look at the disk"])
        elif self._reclaimer is not None:
            await self._reclaimer.look()

    async def close(self) -> None:
        """Finish and sync the journal."""
        await self.journal.close()
