"""Where an import goes to: a cluster's state, its store, and the right to write to both."""

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
        """What follows the cluster log."""

    @property
    def state(self) -> State:
        """The state as of the last entry applied."""

    async def barrier(self) -> State:
        """Learn all that was committed before this call."""

    async def numbers(self) -> Callable[[], int]:
        """Join the cluster, if need be; return what names new objects."""

    async def propose(
        self, events: Sequence[Message], payload: Sequence[Buffer] = ()
    ) -> list[Outcome]:
        """Have events happen; return what became of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """How an import is done."""

    segment_bytes: int = 64 * 1024 * 1024
    """The size at which a segment ends; so much of each partition under way is in memory."""
    at_once: int = 2
    """Partitions that are read and written at the same time."""
    skip_damaged: bool = False
    """Leave damaged batches out, as gaps; else the import stops at the first one."""
    topics: frozenset[str] | None = None
    """Only these topics; all, if not given."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The broker's own settings, as its `server.properties` has them: topics inherit some."""


async def happen(target: ImportTarget, events: Sequence[Message], what: str) -> list[Outcome]:
    """Have events happen together.

    Raises:
        Conflict: one was refused because somebody has written to the partition.
        ApiError: one was refused for another reason; the text says what was meant to happen.
    """
    outcomes = await target.propose(events)
    for outcome in outcomes:
        if outcome.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Conflict(
                f"{what}: somebody else has written to it, so that its offsets are taken; delete "
                "the topic, keep writers away, and import it again"
            )
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error, f"{what}: refused with {outcome.error.name}")
    return outcomes
