"""The end of groups and of offsets: because somebody wants it, or because nobody has for long.

Offsets expire as in Kafka (KIP-211): those of a group without members when it has had none, and the
offset was not committed, for the retention time; those of a group with members only in topics that
none of these reads. Times are those of the entries, so a broker whose clock is off expires nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rookery.broker.groups.coordinator import Coordinator
from rookery.broker.groups.machine import Machine
from rookery.broker.groups.requests import refusal
from rookery.broker.groups.seats import Seat
from rookery.clock import Clock
from rookery.cluster.events.groups import (
    ExpiredPlace,
    GroupDeleted,
    GroupExpired,
    OffsetsExpired,
)
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import CommittedOffset, Group
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.topics import Topics
from rookery.errors import ApiError, Error, ErrorCode

# What an entry has room for; the rest comes with the next look.
_MAX_PLACES: Final = 4_000

_Proposal = asyncio.Future[list[Outcome]]


async def remove(groups: Coordinator, replica: Replica, group_id: str) -> None:
    """Delete a group.

    Raises:
        ApiError: it has members, or is not there, or has another coordinator.
    """

    def propose(seat: Seat) -> _Proposal:
        if not seat.epoch or seat.machine is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if not seat.machine.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        event = GroupDeleted(group_id=group_id, epoch=seat.epoch, version=seat.version)
        return replica.propose([event])

    proposal = await groups.run(group_id, propose)
    try:
        [outcome] = await proposal
    except Error as error:
        raise refusal(error) from error
    if outcome.error is ErrorCode.REBALANCE_IN_PROGRESS:  # somebody has joined meanwhile
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
    if outcome.error is not ErrorCode.NONE:
        raise ApiError(outcome.error)


def expired(
    group: Group, machine: Machine, topics: Topics, now_ms: int, retention_ms: int
) -> list[ExpiredPlace]:
    """Return the offsets that nobody has used for as long as they are kept."""
    found: list[ExpiredPlace] = []
    emptied_ms = group.persisted_ms if machine.is_empty else -1
    for topic_id, partition, one in group.each_offset():
        topic = topics.by_id.get(topic_id)
        is_used = not machine.is_empty and (topic is None or machine.subscribes(topic.name))
        if not is_used and now_ms >= _end_ms(one, emptied_ms, retention_ms):
            found.append(
                ExpiredPlace(topic_id=topic_id, partition=partition, commit_ms=one.commit_ms)
            )
    return found[:_MAX_PLACES]


def _end_ms(one: CommittedOffset, emptied_ms: int, retention_ms: int) -> int:
    if one.retention_ms >= 0:
        return one.commit_ms + one.retention_ms
    return max(one.commit_ms, emptied_ms) + retention_ms


class OffsetRetention:
    """Forgets offsets, and groups that are nothing any more."""

    def __init__(
        self,
        groups: Coordinator,
        replica: Replica,
        clock: Clock,
        retention_ms: int,
        is_clock_sound: Callable[[], bool],
    ) -> None:
        self._groups = groups
        self._replica = replica
        self._clock = clock
        self._retention_ms = retention_ms
        self._is_clock_sound = is_clock_sound

    async def run(self) -> None:
        """Look at every group of this broker's once."""
        await self._replica.barrier()
        if not self._is_clock_sound():
            return
        for group in list(self._replica.state.groups):
            # Only those that have something to lose are claimed for it.
            if self._groups.is_ours(group.id) and self._ends(group, self._groups.machine(group)):
                proposal = await self._groups.run(group.id, self._propose)
                if proposal is not None:
                    await self._settle(group.id, proposal)

    def _propose(self, seat: Seat) -> _Proposal | None:
        group = self._replica.state.groups.by_id.get(seat.group_id)
        if group is None or seat.machine is None:
            return None
        events = self._ends(group, seat.machine)
        return self._replica.propose(events) if events else None

    async def _settle(self, group_id: str, proposal: _Proposal) -> None:
        await proposal

    def _ends(self, group: Group, machine: Machine) -> list[OffsetsExpired | GroupExpired]:
        """Return what has come to its end."""
        now_ms = self._clock.now_ms()
        places = expired(group, machine, self._replica.state.topics, now_ms, self._retention_ms)
        events: list[OffsetsExpired | GroupExpired] = []
        if places:
            events.append(OffsetsExpired(group_id=group.id, epoch=group.epoch, places=places))
        # A deadline is that of somebody who was given a member id, and is about to join.
        is_alone = machine.is_empty and machine.deadline_ms is None
        if is_alone and len(places) == sum(map(len, group.offsets.values())):
            events.append(GroupExpired(group_id=group.id, epoch=group.epoch, version=group.version))
        return events
