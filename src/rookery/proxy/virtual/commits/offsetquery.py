"""Answers OffsetFetch where a group's offsets in virtual partitions are in its shadow groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from rookery.errors import ApiError, Error, ErrorCode
from rookery.model.virtual import NO_OFFSET
from rookery.proxy.virtual.commits.shadowgroups import shadow_id
from rookery.proxy.virtual.topicbook import TopicEntry, TopicKind
from rookery.proxy.virtual.virtualfetch import refusal_of
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_CODE: Final = 2
_UNDONE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_Wanted = dict[int, dict[str, dict[int, int]]]
"""By slot, topic and physical partition: the virtual partition."""
_Rows = dict[tuple[str, int], OffsetFetchResponsePartition]


async def answer_offsets(
    topics: VirtualTopics,
    ask: Callable[[Any, Any], Awaitable[Any]],
    request: OffsetFetchRequest,
    version: int,
) -> OffsetFetchResponse:
    """Return the committed offsets of all groups of a request, in the form of its version."""
    asked = request.groups
    if version < FIRST_WITH_GROUPS:
        asked = [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]
    query = OffsetQuery(topics, ask, is_stable=request.require_stable)
    groups = []
    for group in asked:
        try:
            groups.append(await query.answer(group))
        except Error:
            groups.append(
                OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=_UNDONE)
            )
    if version >= FIRST_WITH_GROUPS:
        return OffsetFetchResponse(groups=groups)
    [only] = groups
    if only.error_code and version < _FIRST_WITH_CODE:
        refusal: OffsetFetchResponse = OFFSET_FETCH.refuse(request, only.error_code)
        return refusal
    return OffsetFetchResponse(topics=only.topics, error_code=only.error_code)


class OffsetQuery:
    """Finds the committed offsets of groups."""

    def __init__(
        self,
        topics: VirtualTopics,
        ask: Callable[[Any, Any], Awaitable[Any]],
        *,
        is_stable: bool,
    ) -> None:
        self._topics = topics
        self._ask = ask
        self._is_stable = is_stable

    async def answer(self, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """Return the offsets of one group.

        Raises:
            Unavailable: the coordinator does not answer.
        """
        topics = None
        if group.topics is not None:
            topics = [self._fences(topic) for topic in group.topics]
        # The coordinator of the real group checks the request, and has the fences.
        [real] = await self._ask_groups([group.replace(topics=topics)])
        if real.error_code:
            return real
        book = self._topics.book
        await book.check(book.select_governed(topic.name for topic in real.topics))
        virtual = [topic for topic in real.topics if book.find(topic.name) is not None]
        fences = {
            (topic.name, row.partition_index): row for topic in virtual for row in topic.partitions
        }
        asked = (
            {topic.name: self._all_partitions(topic.name) for topic in virtual}
            if group.topics is None
            else {topic.name: topic.partition_indexes for topic in group.topics}
        )
        rows = await self._find(group, asked, fences)
        if group.topics is None:
            rows = {
                key: row
                for key, row in rows.items()
                if row.error_code or row.committed_offset != NO_OFFSET
            }
        kept = [topic for topic in real.topics if book.find(topic.name) is None]
        real.topics = [*kept, *_topics_of(rows)]
        return real

    def _fences(self, topic: OffsetFetchRequestTopic) -> OffsetFetchRequestTopic:
        """Return the request to the real group for a topic."""
        entry = self._topics.book.find(topic.name)
        if entry is None or entry.kind is not TopicKind.VIRTUAL:
            return topic
        remapper = entry.rule.remapper
        physical = {
            remapper.virtual_to_physical(index).physical_partition
            for index in topic.partition_indexes
            if 0 <= index < remapper.virtual_partitions
        }
        return topic.replace(partition_indexes=sorted(physical))

    def _all_partitions(self, name: str) -> list[int]:
        entry = self._topics.book.find(name)
        if entry is None or entry.kind is not TopicKind.VIRTUAL:
            return []
        return list(range(entry.rule.remapper.virtual_partitions))

    async def _find(
        self, group: OffsetFetchRequestGroup, asked: dict[str, list[int]], fences: _Rows
    ) -> _Rows:
        """Return the offsets of virtual partitions, as the client names them."""
        rows: _Rows = {}
        wanted: _Wanted = {}
        for name, partitions in asked.items():
            entry = self._topics.book.find(name)
            for partition in partitions if entry is not None else ():
                row = rows[name, partition] = _row(partition)
                try:
                    physical, slot = _place(entry, partition)
                except ApiError as error:
                    row.error_code = error.code
                    continue
                fence = fences.get((name, physical))
                if fence is not None and (fence.error_code or fence.committed_offset == NO_OFFSET):
                    rows[name, partition] = fence.replace(partition_index=partition)
                else:
                    wanted.setdefault(slot, {}).setdefault(name, {})[physical] = partition
        if wanted:
            await self._ask_shadows(group.group_id, wanted, rows)
        return rows

    async def _ask_shadows(self, group_id: str, wanted: _Wanted, rows: _Rows) -> None:
        """Ask the shadow groups, and put their offsets into the rows."""
        count = await self._topics.calls.count_offsets_partitions()
        slots = {shadow_id(group_id, slot, count): slot for slot in wanted}
        self._topics.calls.share_coordinator(group_id, slots)
        shadows = [
            OffsetFetchRequestGroup(
                group_id=shadow,
                topics=[
                    OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes))
                    for name, indexes in wanted[slot].items()
                ],
            )
            for shadow, slot in slots.items()
        ]
        for answer in await self._ask_groups(shadows):
            names = wanted[slots[answer.group_id]]
            if answer.error_code:
                for name, indexes in names.items():
                    for partition in indexes.values():
                        rows[name, partition].error_code = answer.error_code
                continue
            for topic in answer.topics:
                for row in topic.partitions:
                    partition = names[topic.name][row.partition_index]
                    rows[topic.name, partition] = row.replace(partition_index=partition)

    async def _ask_groups(
        self, groups: list[OffsetFetchRequestGroup]
    ) -> list[OffsetFetchResponseGroup]:
        response: OffsetFetchResponse = await self._ask(
            OFFSET_FETCH, OffsetFetchRequest(groups=groups, require_stable=self._is_stable)
        )
        return response.groups


def _place(entry: TopicEntry | None, partition: int) -> tuple[int, int]:
    """Return the physical partition and the slot of a virtual partition.

    Raises:
        ApiError: the topic is not served, or does not have it.
    """
    if entry is None or entry.kind is not TopicKind.VIRTUAL:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if entry is None else refusal_of(entry)
        raise ApiError(code)
    place = entry.rule.remapper.virtual_to_physical(partition)
    return place.physical_partition, place.virtual_group


def _row(partition: int) -> OffsetFetchResponsePartition:
    """Return the row of a partition without an answer.

    It has an error; otherwise it would mean that the group has committed nothing.
    """
    return OffsetFetchResponsePartition(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        metadata="",
        error_code=_UNDONE,
    )


def _topics_of(rows: _Rows) -> list[OffsetFetchResponseTopic]:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for (name, _), row in rows.items():
        topics.setdefault(name, OffsetFetchResponseTopic(name=name, partitions=[]))
        topics[name].partitions.append(row)
    return list(topics.values())
