"""The target of an import: a cluster's state and store, with the right to write to both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rookery.clock import Clock
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.state import State
from rookery.errors import ApiError, Conflict, ErrorCode
from rookery.log.maintain.newobjects import Proposer
from rookery.store.port import Store
from rookery.wire.buffer import Buffer
from rookery.wire.message import Message


class ImportTarget(Protocol):
    """A cluster that this process has joined, to write objects and commit them."""

    clock: Clock
    store: Store
    namespace: str

    @property
    def replica(self) -> Proposer:
        """The replica that follows the cluster log."""

    @property
    def state(self) -> State:
        """The state as of the last applied entry."""

    async def barrier(self) -> State:
        """Apply everything that was committed before this call."""

    async def numbers(self) -> Callable[[], int]:
        """Join the cluster if needed; return the generator of object ids."""

    async def propose(
        self, events: Sequence[Message], payload: Sequence[Buffer] = ()
    ) -> list[Outcome]:
        """Propose events; return the outcome of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """The options of an import."""

    segment_bytes: int = 64 * 1024 * 1024
    """The maximum size of a segment; each partition in progress holds this much in memory."""
    at_once: int = 2
    """The number of partitions that are imported concurrently."""
    skip_damaged: bool = False
    """Skip damaged batches, as gaps; otherwise the import stops at the first one."""
    topics: frozenset[str] | None = None
    """Only these topics; all, if not given."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The broker's own settings from its `server.properties`: topics inherit some of them."""


async def happen(target: ImportTarget, events: Sequence[Message], what: str) -> list[Outcome]:
    """Propose events together, and check the outcomes.

    Raises:
        Conflict: an event was rejected because another writer has written to the partition.
        ApiError: an event was rejected for another reason; the text names the operation.
    """
    outcomes = await target.propose(events)
    for outcome in outcomes:
        if outcome.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Conflict(
                f"{what}: another producer has written to it, so its offsets are taken; delete "
                "the topic, keep writers away, and import it again"
            )
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error, f"{what}: refused with {outcome.error.name}")
    return outcomes
