"""A member of a classic consumer group, in which one member assigns for all.

    join ──► sync ──► stay, with heartbeats
     ▲         │        │ the group rebalances
     │◄────────┘        │
     │  partitions were revoked and released
     └──────────────────┘

Members keep their partitions while they join (cooperative rebalancing, KIP-429). A partition that
moves is revoked from one member in one round. It is assigned to another in the next round, after
all members have joined again.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from rookery.client.client import Client
from rookery.client.connect.connections import Lane, Link
from rookery.consumer.group.member import LEAVE_SECONDS
from rookery.consumer.group.partitions import Change, MemberPartitions
from rookery.consumer.group.sticky import NAME, MemberClaim, assign
from rookery.errors import ApiError, ConfigError, Error, ErrorCode, ProtocolError, Unavailable
from rookery.model.partition import TopicPartition
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from rookery.wire.messages.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from rookery.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from rookery.wire.messages.sync_group import (
    SYNC_GROUP,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from rookery.wire.protocols import consumer

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A", JoinGroupResponse, SyncGroupResponse, HeartbeatResponse)

_TYPE: Final = "consumer"
_SESSION_MS: Final = 45_000
_REBALANCE_MS: Final = 60_000
_BEAT_MS: Final = 1_000
_PATIENCE_MS: Final = 10_000
_RETRY_MS: Final = 100
_LEAVES_MANY: Final = 3
_GENERATION: Final = struct.Struct(">i")
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class ClassicGroupMember:
    """One member of a classic group."""

    def __init__(self, client: Client, group: str, topics: Sequence[str], look_ms: int) -> None:
        """Create a member that has not joined yet.

        Args:
            client: a client of the group's cluster.
            group: the group's name.
            topics: the topics to subscribe to.
            look_ms: how often a leader checks whether topics have more partitions.
        """
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self._look_ms = look_ms
        self._counts: dict[str, int] | None = None
        self.holding = MemberPartitions(client, group, is_classic=True)
        """The partitions that the member owns."""

    async def run(self, on_given: Change, on_taken: Change) -> None:
        """Stay in the group until cancelled, then leave.

        Raises:
            ConfigError: the group's members use another assignment protocol.
            ApiError: the group rejects the member.
        """
        try:
            while True:
                try:
                    if not await self._join(on_given, on_taken):
                        await self._stay()
                except ApiError as error:
                    if error.code not in _LOST:
                        raise
                    await self.holding.lose_all(on_taken)
                    self.holding.member_id, self.holding.epoch = "", -1
                except Unavailable as error:
                    log.debug("group %s cannot be reached: %s", self._group, error)
                    await self.holding.wait(_BEAT_MS)
        finally:
            await self._leave()

    async def _join(self, on_given: Change, on_taken: Change) -> bool:
        """Join the next generation; return whether to rejoin immediately."""
        joined = await self._send_join()
        if joined is None:
            return True
        self.holding.member_id, self.holding.epoch = joined.member_id, joined.generation_id
        synced = await self._send_sync(joined)
        if synced.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        _check(synced.error_code, self._group)
        taken, _ = await self.holding.change(_places(synced.assignment), on_given, on_taken)
        return taken

    async def _send_join(self) -> JoinGroupResponse | None:
        """Send JoinGroup; return None if the member must try again."""
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.holding.member_id,
            protocol_type=_TYPE,
            protocols=[JoinGroupRequestProtocol(name=NAME, metadata=self._subscription())],
        )

        async def ask(link: Link, _: int) -> JoinGroupResponse:
            version = link.versions.choose(JOIN_GROUP)
            # The response arrives when all members have joined or the rebalance timeout expires.
            timeout_ms = _REBALANCE_MS + _PATIENCE_MS
            return _heard(await link.call(JOIN_GROUP, version, request, timeout_ms), self._group)

        answer = await self._ask("join", ask)
        if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.holding.member_id = answer.member_id
            return None
        if answer.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
            await self.holding.wait(_RETRY_MS)
            return None
        if answer.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise ConfigError(
                f"group={self._group!r}: its members assign in another way; have all of them use "
                f"the assignor {NAME}"
            )
        _check(answer.error_code, self._group)
        return answer

    def _subscription(self) -> bytes:
        return consumer.write_subscription(
            consumer.ConsumerProtocolSubscription(
                topics=list(self._topics),
                # Assignors from before KIP-792 read the generation from here.
                user_data=_GENERATION.pack(self.holding.epoch),
                owned_partitions=_by_topic(self.holding.owned),
                generation_id=self.holding.epoch,
            )
        )

    async def _send_sync(self, joined: JoinGroupResponse) -> SyncGroupResponse:
        """Send SyncGroup to get our assignment; as leader, assign partitions to all members."""
        self._counts = None
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            claims = {row.member_id: _claim(row.metadata) for row in joined.members}
            self._counts = await self._count(
                {topic for claim in claims.values() for topic in claim[0]}
            )
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=_assignment(places))
                for member, places in assign(self._counts, claims).items()
            ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=_TYPE,
            protocol_name=joined.protocol_name or NAME,
            assignments=assignments,
        )

        async def ask(link: Link, _: int) -> SyncGroupResponse:
            version = link.versions.choose(SYNC_GROUP)
            timeout_ms = _REBALANCE_MS + _PATIENCE_MS
            return _heard(await link.call(SYNC_GROUP, version, request, timeout_ms), self._group)

        return await self._ask("sync", ask)

    async def _count(self, topics: set[str]) -> dict[str, int]:
        """Return the partition count of each topic; topics that do not exist are left out."""
        counts: dict[str, int] = {}
        deadline = self._client.router.retrier.deadline()
        await self._client.metadata.refresh(sorted(topics), deadline)
        for name in sorted(topics):
            try:
                counts[name] = len((await self._client.metadata.topic(name, deadline)).partitions)
            except ApiError as error:
                log.debug("topic %s of group %s: %s", name, self._group, error)
        return counts

    async def _stay(self) -> None:
        """Send heartbeats until the group rebalances or, as leader, partition counts change."""
        looked_at = self._client.clock.monotonic_ms()
        while True:
            await self.holding.wait(_BEAT_MS)
            code = await self._beat()
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                return
            _check(code, self._group)
            now = self._client.clock.monotonic_ms()
            if self._counts is not None and now - looked_at >= self._look_ms:
                looked_at = now
                if await self._count(set(self._counts)) != self._counts:
                    return

    async def _beat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.holding.epoch,
            member_id=self.holding.member_id,
        )

        async def ask(link: Link, timeout_ms: int) -> ErrorCode:
            version = link.versions.choose(HEARTBEAT)
            answer = await link.call(HEARTBEAT, version, request, timeout_ms)
            return _heard(answer, self._group).error_code

        return await self._ask("stay in", ask)

    async def _leave(self) -> None:
        member_id = self.holding.member_id
        if not member_id:
            return
        request = LeaveGroupRequest(group_id=self._group)

        async def ask(link: Link, timeout_ms: int) -> None:
            version = link.versions.choose(LEAVE_GROUP)
            if version < _LEAVES_MANY:
                request.member_id = member_id
            else:
                request.members = [MemberIdentity(member_id=member_id)]
            await link.call(LEAVE_GROUP, version, request, timeout_ms)

        with suppress(Error, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                # In the lane for questions: a waiting JoinGroup would block the group lane.
                await self._ask("leave", ask, Lane.QUESTIONS)

    async def _ask(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], lane: Lane = Lane.GROUP
    ) -> T:
        router = self._client.router
        deadline = router.retrier.deadline(2 * (_REBALANCE_MS + _PATIENCE_MS))
        return await router.ask_coordinator(
            f"{what} group {self._group!r}", self._group, ask, deadline, lane=lane
        )


def _heard(answer: A, group: str) -> A:
    """Return a response, or raise if its error is retriable."""
    if answer.error_code.retriable:
        _check(answer.error_code, group)
    return answer


def _check(code: ErrorCode, group: str) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"group {group!r}: {code.sentence}")


def _claim(metadata: bytes) -> MemberClaim:
    """Parse a member's subscription; one that cannot be parsed claims no topics."""
    try:
        subscription = consumer.read_subscription(metadata)
    except ProtocolError as error:
        log.warning("a member's subscription cannot be read: %s", error)
        return MemberClaim(frozenset())
    owned = frozenset(
        TopicPartition(topic.topic, number)
        for topic in subscription.owned_partitions
        for number in topic.partitions
    )
    generation = subscription.generation_id
    if generation < 0 and len(subscription.user_data or b"") == _GENERATION.size:
        [generation] = _GENERATION.unpack(subscription.user_data or b"")
    return MemberClaim(frozenset(subscription.topics), owned, generation)


def _assignment(places: set[TopicPartition]) -> bytes:
    return consumer.write_assignment(
        consumer.ConsumerProtocolAssignment(assigned_partitions=_by_topic(places))
    )


def _by_topic(places: set[TopicPartition]) -> list[consumer.AssignedTopic]:
    topics: dict[str, list[int]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic, []).append(place.partition)
    return [consumer.AssignedTopic(topic=name, partitions=many) for name, many in topics.items()]


def _places(assignment: bytes) -> set[TopicPartition]:
    if not assignment:
        return set()
    return {
        TopicPartition(topic.topic, number)
        for topic in consumer.read_assignment(assignment).assigned_partitions
        for number in topic.partitions
    }
