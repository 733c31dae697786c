"""Commits and deletes group offsets in the log, under the coordinator's claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.groups.machine import CommitGate, gate_of
from rookery.broker.groups.requests import refusal
from rookery.broker.groups.subject import GroupSeat
from rookery.cluster.entry import divide_offsets
from rookery.cluster.events.groupevents import (
    OffsetCommitted,
    OffsetPlace,
    OffsetsCommitted,
    OffsetsDeleted,
)
from rookery.cluster.replica import Replica
from rookery.cluster.state.outcome import Outcome
from rookery.errors import ApiError, ErrorCode

# The size of an entry is limited, and other proposals need room in it too.
_PART_PLACES: Final = 4_000

Proposals = list["asyncio.Future[list[Outcome]]"]


@dataclass(frozen=True, slots=True)
class CommitAuthor:
    """The committing client: a member or, with -1 and an empty id, a client without membership."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None
    version: int = 9
    """The version of the OffsetCommit."""

    @property
    def is_member(self) -> bool:
        """Whether it commits as a member; then the group must exist."""
        return self.generation >= 0


def commit_gate(seat: GroupSeat) -> CommitGate:
    """Return the guard of a group's offsets.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, as in Kafka, if groups of this kind commit no offsets.
    """
    gate = gate_of(seat.machine)
    if gate is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {seat.key!r} commits no offsets")
    return gate


async def commit(
    groups: GroupCoordinator,
    replica: Replica,
    author: CommitAuthor,
    offsets: Sequence[OffsetCommitted],
) -> list[ErrorCode]:
    """Commit offsets; return the result of each.

    Raises:
        ApiError: the commit is refused, or the coordinator is another broker.
    """

    def propose(seat: GroupSeat) -> Proposals:
        code = commit_gate(seat).check_commit(
            author.member_id, author.generation, author.instance_id, version=author.version
        )
        if not seat.epoch:
            code = ErrorCode.ILLEGAL_GENERATION  # the group does not exist, so it has no generation
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"a commit for group {author.group_id!r}")
        return [
            replica.propose(
                [OffsetsCommitted(group_id=author.group_id, epoch=seat.epoch, offsets=part)]
            )
            for part in divide_offsets(offsets)
        ]

    proposals = await groups.run(author.group_id, propose, creates=not author.is_member)
    codes: list[ErrorCode] = []
    for outcome in await outcomes_of(proposals):
        codes += outcome.value
    return codes


async def delete(
    groups: GroupCoordinator,
    replica: Replica,
    group_id: str,
    places: Sequence[OffsetPlace],
    is_in_use: Callable[[CommitGate, OffsetPlace], bool],
) -> list[ErrorCode]:
    """Delete offsets except those in use; return the result of each.

    Raises:
        ApiError: the group does not exist, or its coordinator is another broker.
    """

    def propose(seat: GroupSeat) -> tuple[list[bool], Proposals]:
        if not seat.epoch:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        gate = commit_gate(seat)
        kept = [is_in_use(gate, place) for place in places]
        gone = [place for place, is_kept in zip(places, kept, strict=True) if not is_kept]
        parts = [gone[at : at + _PART_PLACES] for at in range(0, len(gone), _PART_PLACES)]
        return kept, [
            replica.propose([OffsetsDeleted(group_id=group_id, epoch=seat.epoch, places=part)])
            for part in parts
        ]

    kept, proposals = await groups.run(group_id, propose)
    await outcomes_of(proposals)
    return [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_kept else ErrorCode.NONE for is_kept in kept]


async def outcomes_of(proposals: Proposals) -> list[Outcome]:
    """Return the outcomes of proposals with one event each, all of which must succeed.

    Raises:
        ApiError: one was refused, or its outcome is unknown.
    """
    results = await asyncio.gather(*proposals, return_exceptions=True)
    outcomes: list[Outcome] = []
    for result in results:
        if isinstance(result, BaseException):
            raise refusal(result)
        [outcome] = result
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error)
        outcomes.append(outcome)
    return outcomes
