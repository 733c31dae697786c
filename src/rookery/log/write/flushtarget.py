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

    def on_committed(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Take note of the offsets that the batches of an object were given."""

    def on_uncertain(self, identity: int) -> None:
        """Take note that it is not known whether an object was committed."""

    @property
    def failure(self) -> str | None:
        """Why the last write failed and what to do; None while writing works."""

    @property
    def journal(self) -> Journal | None:
        """The journal that flushes are appended to; None if they go elsewhere."""

    async def maintain(self) -> None:
        """Do periodic work, and check whether a failed disk or store works again."""

    async def flush_notes(self) -> None:
        """Write facts about earlier flushes that no object records yet; writes end with this."""

    async def close(self) -> None:
        """Release all resources."""


class NoFlushTarget:
    """The target of a broker that has not joined the cluster: it rejects writes."""

    journal: Journal | None = None
    failure: str | None = None

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Reject the write.

        Raises:
            Unavailable: always.
        """
        raise Unavailable(f"this broker has not joined the cluster; {len(batches)} batches wait")

    def on_committed(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Ignore small flushes, which are stored in the entry that commits them."""

    def on_uncertain(self, identity: int) -> None:
        """Ignore small flushes, which are stored in the entry that commits them."""

    async def maintain(self) -> None:
        """Return at once."""

    async def flush_notes(self) -> None:
        """Return at once."""

    async def close(self) -> None:
        """Return at once."""


class JournalTarget:
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

    def on_committed(self, identity: int, _outcomes: Sequence[AppendOutcome]) -> None:
        """Allow the file to be ended: no commit into it is in progress."""
        self.on_uncertain(identity)

    def on_uncertain(self, identity: int) -> None:
        """Allow the file to be ended: a commit that takes effect later has rows, or is void."""
        if identity and self._reclaimer is not None:
            self._reclaimer.end_commit(identity)

    async def maintain(self) -> None:
        """Check whether a failed disk works again, and reclaim space of the journal."""
        if self.journal.failure:
            with suppress(Unavailable):
                await self.journal.append([b"a look at the disk"])
        elif self._reclaimer is not None:
            await self._reclaimer.look()

    async def flush_notes(self) -> None:
        """Return at once: the cluster log is as durable as the journal and has the offsets."""

    async def close(self) -> None:
        """Finish and sync the journal."""
        await self.journal.close()
