"""Offsets that one client commits within its transactions, kept in shadow groups.

The offsets of the fence and of the shadow groups belong to the client's own transaction, so they
count together or not at all. All shadow groups of a group have its partition of the topic for
committed offsets, which the client's transaction has joined.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from rookery.errors import Error, ErrorCode
from rookery.proxy.virtual.commits.commitplaces import (
    FENCE_OFFSET,
    CommitPlace,
    PlaceKey,
    find_places,
)
from rookery.proxy.virtual.commits.groupcommits import Ask
from rookery.proxy.virtual.commits.shadowgroups import shadow_id
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.messages.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_UNDONE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_Topics = dict[str, TxnOffsetCommitRequestTopic]
_Codes = dict[PlaceKey, ErrorCode]


class TransactionCommits:
    """The commits of one client within transactions."""

    def __init__(self, topics: VirtualTopics, ask: Ask) -> None:
        """Prepare for one client.

        Args:
            topics: with virtual partitions.
            ask: sends a request on the client's connections.
        """
        self._topics = topics
        self._ask = ask
        # A later commit of a client must not be overtaken by an earlier one.
        self._turn = asyncio.Lock()

    async def commit(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> TxnOffsetCommitResponse:
        """Commit offsets, some of them in virtual partitions."""
        async with self._turn:
            places, codes = find_places(self._topics, request)
            with suppress(Error):
                codes.update(await self._commit(request, version, places))
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=part.partition_index,
                            error_code=codes.get((topic.name, part.partition_index), _UNDONE),
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def _commit(
        self, request: TxnOffsetCommitRequest, version: int, places: dict[PlaceKey, CommitPlace]
    ) -> _Codes:
        """Return the codes of the partitions that were sent.

        Raises:
            Unavailable: the coordinator does not answer.
        """
        count = await self._topics.calls.count_offsets_partitions()
        fence, shadows = self._divide(request, places)
        # In the version of the client: others belong to another protocol of transactions.
        codes = await self._send(request.replace(topics=list(fence.values())), version)
        fences = {
            key: codes.get((place.topic, place.physical), _UNDONE) for key, place in places.items()
        }
        plain = {key: code for key, code in codes.items() if self._topics.book.find(key[0]) is None}
        if any(fences.values()) or any(plain.values()):
            return plain | fences
        names = {slot: shadow_id(request.group_id, slot, count) for slot in shadows}
        self._topics.calls.share_coordinator(request.group_id, names.values())
        answers = await asyncio.gather(
            *(
                self._send(
                    request.replace(
                        group_id=names[slot],
                        generation_id=-1,
                        member_id="",
                        group_instance_id=None,
                        topics=list(topics.values()),
                    ),
                    version,
                )
                for slot, topics in shadows.items()
            )
        )
        results = dict(zip(shadows, answers, strict=True))
        return plain | {
            key: results[place.slot].get((place.topic, place.physical), _UNDONE)
            for key, place in places.items()
        }

    def _divide(
        self, request: TxnOffsetCommitRequest, places: dict[PlaceKey, CommitPlace]
    ) -> tuple[_Topics, dict[int, _Topics]]:
        """Return the topics for the real group, and those for each shadow group."""
        fence: _Topics = {}
        shadows: dict[int, _Topics] = {}
        for topic in request.topics:
            if self._topics.book.find(topic.name) is None:
                fence[topic.name] = topic
                continue
            fenced: dict[int, TxnOffsetCommitRequestPartition] = {}
            for part in topic.partitions:
                place = places.get((topic.name, part.partition_index))
                if place is None:
                    continue
                fenced[place.physical] = TxnOffsetCommitRequestPartition(
                    partition_index=place.physical,
                    committed_offset=FENCE_OFFSET,
                    committed_metadata="",
                )
                rows = shadows.setdefault(place.slot, {}).setdefault(
                    topic.name, TxnOffsetCommitRequestTopic(name=topic.name, partitions=[])
                )
                rows.partitions.append(part.replace(partition_index=place.physical))
            if fenced:
                fence[topic.name] = topic.replace(partitions=list(fenced.values()))
        return fence, shadows

    async def _send(self, request: TxnOffsetCommitRequest, version: int) -> _Codes:
        if not request.topics:
            return {}
        response: TxnOffsetCommitResponse = await self._ask(TXN_OFFSET_COMMIT, request, version)
        return {
            (topic.name, part.partition_index): part.error_code
            for topic in response.topics
            for part in topic.partitions
        }
