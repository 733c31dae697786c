"""Committed offsets of one client's groups in virtual partitions, kept in shadow groups.

A commit is first made on the real group, with the client's member and generation and offset 0.
Kafka refuses it if the member has been fenced. Then the offsets are committed in the shadow groups,
which have no members. A member that is fenced between the two can only move an offset back.

The offset 0 on the real group, the *fence*, also limits the life of the others: where Kafka has let
it expire, the offsets of the shadow groups do not count. Kafka sees no member in shadow groups, and
would let their offsets expire while the group is alive; so they are committed to stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from rookery.errors import Error, ErrorCode, Unavailable
from rookery.proxy.virtual.commits.commitplaces import (
    FENCE_OFFSET,
    CommitPlace,
    PlaceKey,
    find_places,
)
from rookery.proxy.virtual.commits.offsetquery import answer_offsets
from rookery.proxy.virtual.commits.shadowgroups import shadow_id
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.message import Api
from rookery.wire.messages.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from rookery.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


class Ask(Protocol):
    """Sends a request to the coordinators of its groups, at most in a given version."""

    def __call__(
        self, api: Api[Any, Any], request: Any, highest: int | None = None
    ) -> Awaitable[Any]:
        """Return the response."""


_WITH_RETENTION: Final = 4
"""The last version of OffsetCommit with a time to keep offsets."""
_RETENTION_MS: Final = 100 * 365 * 86_400_000
_UNDONE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class GroupCommits:
    """The commits of one client."""

    def __init__(self, topics: VirtualTopics, ask: Ask) -> None:
        """Create it for one client.

        Args:
            topics: the topics with virtual partitions.
            ask: sends a request on the client's connections.
        """
        self._topics = topics
        self._ask = ask
        # A later commit of a client must not be overtaken by an earlier one.
        self._turn = asyncio.Lock()

    async def commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        """Commit offsets, some of them in virtual partitions."""
        async with self._turn:
            return await self._commit(request, version)

    async def fetch(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        """Return committed offsets."""
        async with self._turn:
            return await answer_offsets(self._topics, self._ask, request, version)

    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """Delete groups, and then their shadows."""
        async with self._turn:
            response: DeleteGroupsResponse = await self._ask(DELETE_GROUPS, request)
            gone = {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}
            for row in response.results:
                if row.error_code in gone:
                    await self._delete_shadows(row)
            return response

    async def _commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        places, codes = find_places(self._topics, request)
        try:
            partitions = await self._topics.calls.count_offsets_partitions()
            await self._fence(request, version, places, codes)
            await self._commit_shadows(request, places, codes, partitions)
        except Error:
            for key in places:
                codes.setdefault(key, _UNDONE)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=part.partition_index,
                            error_code=codes.get((topic.name, part.partition_index), _UNDONE),
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def _fence(
        self,
        request: OffsetCommitRequest,
        version: int,
        places: dict[PlaceKey, CommitPlace],
        codes: dict[PlaceKey, ErrorCode],
    ) -> None:
        """Commit on the real group: plain partitions unchanged, virtual ones at offset 0."""
        topics = []
        for topic in request.topics:
            if self._topics.book.find(topic.name) is None:
                topics.append(topic)
                continue
            fenced = {
                place.physical: OffsetCommitRequestPartition(
                    partition_index=place.physical,
                    committed_offset=FENCE_OFFSET,
                    committed_metadata="",
                )
                for (name, _), place in places.items()
                if name == topic.name
            }
            if fenced:
                topics.append(topic.replace(partitions=list(fenced.values())))
        if not topics:
            return
        # In the version of the client, which knows the errors of that version.
        response = await self._ask(OFFSET_COMMIT, request.replace(topics=topics), version)
        results = _codes_of(response)
        for key, place in places.items():
            code = results.get((place.topic, place.physical), _UNDONE)
            if code:
                codes[key] = code
        codes.update(
            {key: code for key, code in results.items() if self._topics.book.find(key[0]) is None}
        )

    async def _commit_shadows(
        self,
        request: OffsetCommitRequest,
        places: dict[PlaceKey, CommitPlace],
        codes: dict[PlaceKey, ErrorCode],
        partitions: int,
    ) -> None:
        """Commit the offsets that the fence has accepted, with one request per slot."""
        by_slot: dict[int, dict[str, OffsetCommitRequestTopic]] = {}
        for topic in request.topics:
            for part in topic.partitions:
                place = places.get((topic.name, part.partition_index))
                if place is None or codes.get((topic.name, part.partition_index)):
                    continue
                rows = by_slot.setdefault(place.slot, {}).setdefault(
                    topic.name, OffsetCommitRequestTopic(name=topic.name, partitions=[])
                )
                rows.partitions.append(part.replace(partition_index=place.physical))
        slots = list(by_slot)
        shadows = [shadow_id(request.group_id, slot, partitions) for slot in slots]
        self._topics.calls.share_coordinator(request.group_id, shadows)
        answers = await asyncio.gather(
            *(
                self._ask(
                    OFFSET_COMMIT,
                    OffsetCommitRequest(
                        group_id=shadow,
                        retention_time_ms=_RETENTION_MS,
                        topics=list(by_slot[slot].values()),
                    ),
                    _WITH_RETENTION,
                )
                for shadow, slot in zip(shadows, slots, strict=True)
            ),
            return_exceptions=True,
        )
        results = {
            slot: _codes_of(answer) if isinstance(answer, OffsetCommitResponse) else {}
            for slot, answer in zip(slots, answers, strict=True)
        }
        for key, place in places.items():
            if not codes.get(key):
                code = results.get(place.slot, {}).get((place.topic, place.physical), _UNDONE)
                codes[key] = code

    async def _delete_shadows(self, row: DeletableGroupResult) -> None:
        try:
            partitions = await self._topics.calls.count_offsets_partitions()
            names = [
                shadow_id(row.group_id, slot, partitions)
                for slot in range(self._topics.rules.max_slots)
            ]
            self._topics.calls.share_coordinator(row.group_id, names)
            response = await self._ask(DELETE_GROUPS, DeleteGroupsRequest(groups_names=names))
        except Unavailable:
            row.error_code = _UNDONE
            return
        for shadow in response.results:
            if shadow.error_code is ErrorCode.NONE:
                row.error_code = ErrorCode.NONE
            elif shadow.error_code is not ErrorCode.GROUP_ID_NOT_FOUND:
                # The client repeats the request; the real group no longer exists then.
                row.error_code = shadow.error_code
                return


def _codes_of(response: OffsetCommitResponse) -> dict[PlaceKey, ErrorCode]:
    return {
        (topic.name, part.partition_index): part.error_code
        for topic in response.topics
        for part in topic.partitions
    }
