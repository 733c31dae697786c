"""A member of a consumer group, by the protocol in which the coordinator assigns (KIP-848).

One call does it all: a heartbeat says what is subscribed and owned, its answer what shall be. What
is taken away is dropped before the next heartbeat says so; only then does another member get it.
Partitions that stay are read on meanwhile: no rebalance stops the others.

    joining ──► stable ◄──► changing (drop what is taken, then own what is given)
       ▲            │ fenced, unknown: everything is dropped
       └────────────┘
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from rookery.client.client import Client
from rookery.client.connections import Link
from rookery.client.groups import CommittedOffset
from rookery.errors import ApiError, ConfigError, Error, ErrorCode
from rookery.model.partition import TopicPartition
from rookery.model.uuid import uuid_text
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

log = logging.getLogger(__name__)

_LEAVE: Final = -1
_REBALANCE_MS: Final = 60_000
_LEAVE_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.5
_FENCED: Final = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
_STALE: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
_COMMITS: Final = 5

Change = Callable[[Sequence[TopicPartition]], Awaitable[None]]
"""Learns of partitions that were given or taken; returns when that is done."""


class Member:
    """One member of a group: what it owns, and its commits."""

    def __init__(self, client: Client, group: str, topics: Sequence[str]) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self._id = uuid_text(client.random.token(16))
        self._epoch = 0
        self._interval_ms = 1_000
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}
        self.owned: set[TopicPartition] = set()
        """The partitions that are ours."""
        self._beat_now = asyncio.Event()

    @property
    def identity(self) -> tuple[str, int]:
        """The id and epoch by which commits are vouched for."""
        return self._id, self._epoch

    async def run(self, on_given: Change, on_taken: Change) -> None:
        """Be a member until cancelled, then leave.

        Raises:
            ConfigError: the cluster does not have this protocol.
            ApiError: the group refuses us.
        """
        await self._learn_topics()
        is_first = True
        try:
            while True:
                try:
                    is_first = await self._beat(on_given, on_taken, is_full=is_first)
                except ApiError as error:
                    if error.code not in _FENCED:
                        raise
                    await self._start_over(on_taken)
                    is_first = True
                await self._pause()
        finally:
            await self._leave()

    async def commit(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """Store how far we have read; partitions that are not ours any more are left out.

        Raises:
            ApiError: it is refused.
        """
        for attempt in range(_COMMITS):
            ours = {place: one for place, one in offsets.items() if place in self.owned}
            if not ours:
                return
            try:
                await self._client.groups.commit_offsets(self._group, ours, member=self.identity)
                return
            except ApiError as error:
                # The epoch moves on with every change; the next heartbeat tells the new one.
                if error.code not in _STALE | _FENCED or attempt == _COMMITS - 1:
                    raise
            self._beat_now.set()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _learn_topics(self) -> None:
        for name in self._topics:
            topic = await self._client.topic(name)
            self._names[topic.id] = name
            self._ids[name] = topic.id

    async def _pause(self) -> None:
        self._beat_now.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval_ms / 1000):
                await self._beat_now.wait()

    async def _beat(self, on_given: Change, on_taken: Change, *, is_full: bool) -> bool:
        """Say that we live; act upon the answer. Return whether all must be said next time."""
        try:
            answer = await self._send(self._epoch, is_full=is_full)
        except ApiError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise ConfigError(
                    f"group={self._group!r}: these brokers do not know groups whose coordinator "
                    "assigns (Kafka 4); name no group, and keep checkpoints"
                ) from error
            raise
        except Error as error:
            log.debug("no heartbeat for group %s: %s", self._group, error)
            return is_full
        self._epoch = answer.member_epoch
        self._interval_ms = max(answer.heartbeat_interval_ms, 1)
        if answer.assignment is None:
            return False
        wanted = {
            TopicPartition(self._names[topic.topic_id], number)
            for topic in answer.assignment.topic_partitions
            if topic.topic_id in self._names
            for number in topic.partitions
        }
        taken, given = self.owned - wanted, wanted - self.owned
        if taken:
            self.owned -= taken
            await on_taken(sorted(taken))
        if given:
            await on_given(sorted(given))
            self.owned |= given
        if taken or given:
            self._beat_now.set()
        return bool(taken or given)

    async def _start_over(self, on_taken: Change) -> None:
        """Drop everything: others may have it by now."""
        lost, self.owned = sorted(self.owned), set()
        if lost:
            await on_taken(lost)
        self._epoch = 0
        self._beat_now.set()

    async def _leave(self) -> None:
        if self._epoch <= 0:
            return
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._send(_LEAVE, is_full=False)

    async def _send(self, epoch: int, *, is_full: bool) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._id, member_epoch=epoch
        )
        if is_full:
            request.rebalance_timeout_ms = _REBALANCE_MS
            request.subscribed_topic_names = list(self._topics)
            request.topic_partitions = self._owned()

        async def ask(link: Link, timeout_ms: int) -> ConsumerGroupHeartbeatResponse:
            version = link.versions.choose(CONSUMER_GROUP_HEARTBEAT)
            answer = await link.call(CONSUMER_GROUP_HEARTBEAT, version, request, timeout_ms)
            if answer.error_code is not ErrorCode.NONE:
                text = answer.error_message or answer.error_code.sentence
                raise ApiError(answer.error_code, f"group {self._group!r}: {text}")
            return answer

        router = self._client.router
        deadline = router.retrier.deadline()
        return await router.ask_coordinator(
            f"join group {self._group!r}", self._group, ask, deadline
        )

    def _owned(self) -> list[TopicPartitions]:
        topics: dict[bytes, list[int]] = {}
        if self._epoch > 0:
            for place in sorted(self.owned):
                topics.setdefault(self._ids[place.topic], []).append(place.partition)
        return [TopicPartitions(topic_id=one, partitions=many) for one, many in topics.items()]
