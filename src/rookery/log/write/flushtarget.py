"""Where a writer's flushes are made durable: in a journal, or as objects in a store."""

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
from rookery.records.batch import BatchHeader
from rookery.store.pendingcalls import PendingCalls


class CheckedBatch(NamedTuple):
    """A batch that was checked: whose it is, its bytes, its header."""

    topic_id: bytes
    partition: int
    data: memoryview
    header: BatchHeader
    joins_transaction: bool = False
    """Whether a transactional batch adds its partition to the transaction by itself (KIP-890)."""


@dataclass(frozen=True, slots=True)
class FlushSettings:
    """How much is flushed together, and how many flushes are under way at once."""

    inline_bytes: int = MAX_PAYLOAD_BYTES
    """A flush up to this size rides in the cluster log's entry."""
    flush_bytes: int = 16 * 1024 * 1024
    """A flush takes no more than this: beyond it latency grows and nothing else."""
    lanes: int = 1
    """Writes at the same time; the journal gathers by itself."""
    interval_ms: int = 0
    """While a write is under way, a small one more begins only after so long."""


class FlushTarget(Protocol):
    """Takes flushes."""

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Make batches durable, one behind the other; return where they lie.

        Raises:
            Unavailable: they are not, or it is not known.
        """

    def settle(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Learn which offsets the batches of an object were given."""

    def doubt(self, identity: int) -> None:
        """Learn that it is not known whether an object was committed."""

    @property
    def failure(self) -> str | None:
        """Why the last write failed and what to do; None while writing works."""

    @property
    def journal(self) -> Journal | None:
        """The journal that flushes are appended to; None if they go elsewhere."""

    async def look_after(self) -> None:
        """Do now and then what keeps it in order; find out whether what failed works again."""

    async def finish(self) -> None:
        """Write what is still to be told; nothing more will be written."""

    async def close(self) -> None:
        """Let it go."""


class NoFlushTarget:
    """Stands in until the broker has joined the cluster."""

    @property
    def journal(self) -> Journal | None:
        """Have none."""
        return None

    async def write(self, batches: Sequence[CheckedBatch]) -> FlushPosition:
        """Refuse."""
        raise Unavailable(f"this broker has not joined the cluster; {len(batches)} batches wait")

    def settle(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Never learn anything."""

    def doubt(self, identity: int) -> None:
        """Never doubt anything."""

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
        """Make batches durable, one behind the other; return where they lie."""
        with self._calls.call("a write"):
            written = await self.journal.append([batch.data for batch in batches])
        if self._reclaimer is not None:
            self._reclaimer.begin_commit(written.object_id)
        return written

    def settle(self, identity: int, outcomes: Sequence[AppendOutcome]) -> None:
        """Note that a commit is settled."""
        del outcomes
        self.doubt(identity)

    def doubt(self, identity: int) -> None:
        """Note that no commit is under way any more; one that counts later is void or has rows."""
        if identity and self._reclaimer is not None:
            self._reclaimer.end_commit(identity)

    async def look_after(self) -> None:
        """Find out that a failed disk works again, and give space of the journal back."""
        if self.journal.failure:
            with suppress(Unavailable):
                await self.journal.append([b"a look at the disk"])
        elif self._reclaimer is not None:
            await self._reclaimer.look()

    async def close(self) -> None:
        """Finish and sync the journal."""
        await self.journal.close()
