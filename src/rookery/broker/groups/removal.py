"""Deletion and expiry of groups and offsets.

Offsets expire as in Kafka (KIP-211). In a group without members, an offset expires when both the
last member's departure and the commit are older than the retention time. In a group with members,
only offsets in topics without a subscription expire. Times are those of the entries, so a broker
whose clock is wrong expires nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.groups.machine import GroupMachine, gate_of
from rookery.broker.groups.requests import refusal
from rookery.broker.groups.subject import GroupSeat
from rookery.clock import Clock
from rookery.cluster.events.groupevents import (
    ExpiredPlace,
    GroupDeleted,
    GroupExpired,
    OffsetsExpired,
)
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import Group, unpack_times
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.topics import Topics
from rookery.errors import ApiError, Error, ErrorCode
from rookery.service.looppace import LoopPace

log = logging.getLogger(__name__)

# The limit per entry; the rest follows in the next run.
_MAX_PLACES: Final = 4_000

_Proposal = asyncio.Future[list[Outcome]]


async def remove(groups: GroupCoordinator, replica: Replica, group_id: str) -> None:
    """Delete a group.

    Raises:
        ApiError: it has members, does not exist, or has another coordinator.
    """

    def propose(seat: GroupSeat) -> _Proposal:
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
    if outcome.error is ErrorCode.REBALANCE_IN_PROGRESS:  # a member has joined in the meantime
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
    if outcome.error is not ErrorCode.NONE:
        raise ApiError(outcome.error)


class Expiry:
    """Finds the expired offsets of one group at one time."""

    def __init__(
        self, group: Group, subscribes: Callable[[str], bool] | None, moment: ExpiryMoment
    ) -> None:
        """Prepare the check of a group.

        Args:
            group: the group whose offsets are checked.
            subscribes: returns whether a member subscribes to a topic; None without members.
            moment: the time and the retention rule.
        """
        self._subscribes = subscribes
        self._moment = moment
        self._emptied_ms = group.persisted_ms if subscribes is None else -1

    def places(self, topic_id: bytes, offsets: Mapping[int, bytes]) -> list[ExpiredPlace]:
        """Return the expired offsets of a topic."""
        if self._is_used(topic_id):
            return []
        moment, expired = self._moment, []
        for partition, packed in offsets.items():
            commit_ms, retention_ms = unpack_times(packed)
            if retention_ms >= 0:
                end_ms = commit_ms + retention_ms
            else:
                end_ms = max(commit_ms, self._emptied_ms) + moment.retention_ms
            if moment.now_ms >= end_ms:
                place = ExpiredPlace(topic_id=topic_id, partition=partition, commit_ms=commit_ms)
                expired.append(place)
        return expired

    def _is_used(self, topic_id: bytes) -> bool:
        if self._subscribes is None:
            return False
        topic = self._moment.topics.by_id.get(topic_id)
        return topic is None or self._subscribes(topic.name)


class ExpiryMoment(NamedTuple):
    """The inputs of the expiry that are the same for all groups."""

    topics: Topics
    now_ms: int
    retention_ms: int


class OffsetRetention:
    """Deletes expired offsets, and groups without members and offsets."""

    def __init__(
        self,
        groups: GroupCoordinator,
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
        """Check every group of this broker once.

        Raises:
            Error: the cluster log is unreachable.
        """
        await self._replica.barrier()
        if not self._is_clock_sound():
            return
        pace = LoopPace(self._clock)
        for group in list(self._replica.state.groups):
            await pace.step()
            if not self._groups.is_ours(group.id):
                continue
            try:
                await self._expire(group, pace)
            except ApiError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
            except Error:
                raise
            except Exception:
                log.exception("offsets of a group cannot expire", extra={"group": group.id})

    async def _expire(self, group: Group, pace: LoopPace) -> None:
        summary = self._groups.summary(group)
        if summary is None:
            return
        machine = None if summary.is_empty else self._groups.machine(group)
        expiry = Expiry(group, _subscribes(machine), self._moment())
        expired: list[ExpiredPlace] = []
        for topic_id in list(group.offsets):
            await pace.step()
            expired += expiry.places(topic_id, group.offsets.get(topic_id, {}))
            if len(expired) >= _MAX_PLACES:
                break
        # Only groups with something to expire are claimed for it.
        if expired or (summary.is_empty and not group.offsets):
            propose = partial(self._propose, expired=expired[:_MAX_PLACES])
            proposal = await self._groups.run(group.id, propose)
            if proposal is not None:
                await proposal

    def _propose(self, seat: GroupSeat, expired: list[ExpiredPlace]) -> _Proposal | None:
        """Check the expired offsets again, now with exclusive access, and propose the expiry."""
        group = self._replica.state.groups.by_id.get(seat.key)
        if group is None or seat.machine is None:
            return None
        machine = seat.machine
        expiry = Expiry(group, _subscribes(machine), self._moment())
        places: list[ExpiredPlace] = []
        for topic_id, some in groupby(expired, key=lambda place: place.topic_id):
            kept = group.offsets.get(topic_id, {})
            indexes = [place.partition for place in some]
            places += expiry.places(
                topic_id, {index: kept[index] for index in indexes if index in kept}
            )
        events: list[OffsetsExpired | GroupExpired] = []
        if places:
            events.append(OffsetsExpired(group_id=group.id, epoch=group.epoch, places=places))
        # A deadline belongs to a client that was given a member id and is about to join.
        is_alone = machine.is_empty and machine.deadline_ms is None
        if is_alone and len(places) == sum(map(len, group.offsets.values())):
            events.append(GroupExpired(group_id=group.id, epoch=group.epoch, version=group.version))
        return self._replica.propose(events) if events else None

    def _moment(self) -> ExpiryMoment:
        return ExpiryMoment(self._replica.state.topics, self._clock.now_ms(), self._retention_ms)


def _subscribes(machine: GroupMachine | None) -> Callable[[str], bool] | None:
    """Return the subscription check of a group; None if no member commits offsets."""
    gate = None if machine is None or machine.is_empty else gate_of(machine)
    return None if gate is None else gate.subscribes
