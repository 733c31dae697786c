"""A member of a consumer group whose coordinator assigns partitions (KIP-848).

The protocol has one request. A heartbeat reports the subscribed topics and owned partitions, and
its response contains the target assignment. A revoked partition is dropped before the next
heartbeat reports it as released. Only then does another member get it. Partitions that stay are
read during the rebalance.

    joining ──► stable ◄──► changing (drop revoked partitions, then own assigned ones)
       ▲            │ fenced, unknown: everything is dropped
       └────────────┘
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from rookery.client.client import Client
from rookery.client.connect.connections import Link
from rookery.consumer.group.partitions import Change, MemberPartitions
from rookery.errors import ApiError, Error, ErrorCode
from rookery.model.partition import TopicPartition
from rookery.model.uuid import random_uuid, uuid_text
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

log = logging.getLogger(__name__)

_LEAVE: Final = -1
_REBALANCE_MS: Final = 60_000
# Enough time to send the request; closing a stream must not wait for a broker that hangs.
LEAVE_SECONDS: Final = 0.08
_FENCED: Final = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)


class ConsumerMember:
    """One member of a group."""

    def __init__(self, client: Client, group: str, topics: Sequence[str]) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self._interval_ms = 1_000
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}
        self.holding = MemberPartitions(client, group, is_classic=False)
        """The partitions that the member owns."""
        self.holding.member_id = uuid_text(random_uuid(client.random.token))
        self.holding.epoch = 0

    async def run(self, on_given: Change, on_taken: Change) -> None:
        """Stay in the group until cancelled, then leave.

        Raises:
            ApiError: the group rejects the member; UNSUPPORTED_VERSION without this protocol.
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
                    await self.holding.lose_all(on_taken)
                    self.holding.epoch = 0
                    self.holding.contact_now.set()
                    is_first = True
                await self.holding.wait(self._interval_ms)
        finally:
            await self._leave()

    async def _learn_topics(self) -> None:
        for name in self._topics:
            topic = await self._client.topic(name)
            self._names[topic.id] = name
            self._ids[name] = topic.id

    async def _beat(self, on_given: Change, on_taken: Change, *, is_full: bool) -> bool:
        """Send a heartbeat and apply the response; return whether the next one must be full."""
        try:
            answer = await self._send(self.holding.epoch, is_full=is_full)
        except ApiError:
            raise
        except Error as error:
            log.debug("no heartbeat for group %s: %s", self._group, error)
            return is_full
        self.holding.epoch = answer.member_epoch
        self._interval_ms = max(answer.heartbeat_interval_ms, 1)
        if answer.assignment is None:
            return False
        wanted = {
            TopicPartition(self._names[topic.topic_id], number)
            for topic in answer.assignment.topic_partitions
            if topic.topic_id in self._names
            for number in topic.partitions
        }
        has_changed = any(await self.holding.change(wanted, on_given, on_taken))
        if has_changed:
            self.holding.contact_now.set()
        return has_changed

    async def _leave(self) -> None:
        if self.holding.epoch <= 0:
            return
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._send(_LEAVE, is_full=False)

    async def _send(self, epoch: int, *, is_full: bool) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self.holding.member_id, member_epoch=epoch
        )
        if is_full:
            request.rebalance_timeout_ms = _REBALANCE_MS
            request.subscribed_topic_names = list(self._topics)
            request.topic_partitions = self._list_owned()

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

    def _list_owned(self) -> list[TopicPartitions]:
        topics: dict[bytes, list[int]] = {}
        if self.holding.epoch > 0:
            for place in sorted(self.holding.owned):
                topics.setdefault(self._ids[place.topic], []).append(place.partition)
        return [
            TopicPartitions(topic_id=topic_id, partitions=many) for topic_id, many in topics.items()
        ]
