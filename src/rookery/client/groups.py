"""Consumer groups: committed offsets, members, listing and deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from rookery.client.connect.connections import Link
from rookery.client.connect.router import Router
from rookery.client.members import GroupDescription, from_classic, from_consumer
from rookery.errors import ApiError, ErrorCode
from rookery.model.node import Node
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from rookery.wire.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from rookery.wire.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)

T = TypeVar("T")

# Later versions name topics by id, which is not available for a deleted topic.
_LAST_BY_NAME = 9
# Version 0 of both kept offsets in ZooKeeper.
_OLDEST_COMMIT, _OLDEST_FETCH, _FETCH_ALL, _FETCH_GROUPS = 2, 1, 2, 8
# From this version on, members of KIP-848 groups can commit.
_COMMIT_OF_MEMBERS = 9


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as listed."""

    group_id: str
    state: str
    kind: str
    """classic, consumer, share or streams; empty if the broker is too old to report it."""
    protocol_type: str


class GroupAdmin:
    """Queries group coordinators."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        timeout_ms: int | None = None,
        *,
        member: tuple[str, int] | None = None,
        is_classic: bool = False,
    ) -> None:
        """Commit offsets for a group.

        Args:
            group: the group's name.
            offsets: the next offset to read in each partition.
            timeout_ms: for the whole call.
            member: the id and epoch of the committing member; None: the group has no members.
            is_classic: whether the group is classic; the epoch is then the generation.

        Raises:
            ApiError: an offset was rejected; UNKNOWN_MEMBER_ID if the group has members.
        """
        request = _commit_request(group, offsets)
        lowest = _OLDEST_COMMIT
        if member is not None:
            request.member_id, request.generation_id_or_member_epoch = member
            lowest = _OLDEST_COMMIT if is_classic else _COMMIT_OF_MEMBERS

        async def ask(link: Link, request_ms: int) -> None:
            version = link.versions.choose(OFFSET_COMMIT, lowest=lowest, highest=_LAST_BY_NAME)
            answer = await link.call(OFFSET_COMMIT, version, request, request_ms)
            for topic in answer.topics:
                for row in topic.partitions:
                    what = f"commit of {topic.name}-{row.partition_index} for group {group!r}"
                    _check(row.error_code, what, link)

        await self._ask(f"commit offsets of group {group!r}", group, ask, timeout_ms)

    async def committed_offsets(
        self,
        group: str,
        places: Iterable[TopicPartition] | None = None,
        *,
        stable: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets; partitions without one are left out.

        Args:
            group: the group's name.
            places: the requested partitions; None: all that the group has offsets for.
            stable: wait for pending transactional commits.
            timeout_ms: for the whole call.
        """
        topics = None if places is None else _topics(places)

        async def ask(link: Link, request_ms: int) -> dict[TopicPartition, CommittedOffset]:
            lowest = 7 if stable else _FETCH_ALL if topics is None else _OLDEST_FETCH
            version = link.versions.choose(OFFSET_FETCH, lowest=lowest, highest=_LAST_BY_NAME)
            request = OffsetFetchRequest(
                group_id=group,
                topics=topics,
                groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
                require_stable=stable,
            )
            answer = await link.call(OFFSET_FETCH, version, request, request_ms)
            return _read_committed(answer, version, group, link)

        return await self._ask(f"fetch offsets of group {group!r}", group, ask, timeout_ms)

    async def delete_offsets(
        self, group: str, places: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> None:
        """Delete a group's offsets in the given partitions.

        Raises:
            ApiError: GROUP_SUBSCRIBED_TO_TOPIC, if a member still reads the topic.
        """
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=row.partition) for row in rows
                    ],
                )
                for topic, rows in _by_topic(places)
            ],
        )

        async def ask(link: Link, request_ms: int) -> None:
            version = link.versions.choose(OFFSET_DELETE)
            answer = await link.call(OFFSET_DELETE, version, request, request_ms)
            _check(answer.error_code, f"delete offsets of group {group!r}", link)
            for topic in answer.topics:
                for row in topic.partitions:
                    what = f"delete offset of {topic.name}-{row.partition_index} in {group!r}"
                    _check(row.error_code, what, link)

        await self._ask(f"delete offsets of group {group!r}", group, ask, timeout_ms)

    async def list_all(self, timeout_ms: int | None = None) -> list[GroupListing]:
        """List the groups of all brokers."""
        deadline = self._router.retrier.deadline(timeout_ms)

        async def attempt() -> list[GroupListing]:
            view = await self._router.metadata.refresh([], deadline)
            request_ms = self._router.request_ms(deadline)
            answers = await asyncio.gather(
                *(self._list_on(node, request_ms) for node in view.nodes.values())
            )
            # A group that moves in the meantime may be listed twice.
            listings = {row.group_id: row for answer in answers for row in answer}
            return [listings[name] for name in sorted(listings)]

        return await self._router.retrier.run("list groups", deadline, attempt)

    async def describe(self, group: str, timeout_ms: int | None = None) -> GroupDescription:
        """Describe a group's members and their assignments, for either group protocol.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """

        async def ask(link: Link, request_ms: int) -> GroupDescription:
            if link.versions.offers(CONSUMER_GROUP_DESCRIBE):
                description = await _describe_consumer(link, group, request_ms)
                if description is not None:
                    return description
            return await _describe_classic(link, group, request_ms)

        return await self._ask(f"describe group {group!r}", group, ask, timeout_ms)

    async def delete(self, group: str, timeout_ms: int | None = None) -> None:
        """Delete a group and its offsets.

        Raises:
            ApiError: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if it does not exist.
        """

        async def ask(link: Link, request_ms: int) -> None:
            version = link.versions.choose(DELETE_GROUPS)
            request = DeleteGroupsRequest(groups_names=[group])
            answer = await link.call(DELETE_GROUPS, version, request, request_ms)
            for row in answer.results:
                _check(row.error_code, f"delete group {group!r}", link)

        await self._ask(f"delete group {group!r}", group, ask, timeout_ms)

    async def _ask(
        self,
        what: str,
        group: str,
        ask: Callable[[Link, int], Awaitable[T]],
        timeout_ms: int | None,
    ) -> T:
        deadline = self._router.retrier.deadline(timeout_ms)
        return await self._router.ask_coordinator(what, group, ask, deadline)

    async def _list_on(self, node: Node, timeout_ms: int) -> list[GroupListing]:
        link = await self._router.connections.get(node.address)
        version = link.versions.choose(LIST_GROUPS)
        answer = await link.call(LIST_GROUPS, version, ListGroupsRequest(), timeout_ms)
        _check(answer.error_code, "list groups", link)
        return [
            GroupListing(row.group_id, row.group_state, row.group_type, row.protocol_type)
            for row in answer.groups
        ]


def _check(code: ErrorCode, what: str, link: Link) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}, by broker {link.name}: {code.sentence}")


def _by_topic(places: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    rows = sorted(set(places))
    return [(topic, list(group)) for topic, group in groupby(rows, key=lambda row: row.topic)]


def _topics(places: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopic]:
    return [
        OffsetFetchRequestTopic(name=topic, partition_indexes=[row.partition for row in rows])
        for topic, rows in _by_topic(places)
    ]


def _commit_request(
    group: str, offsets: Mapping[TopicPartition, CommittedOffset | int]
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic, partitions=[_commit_row(row, offsets[row]) for row in rows]
            )
            for topic, rows in _by_topic(offsets)
        ],
    )


def _commit_row(
    place: TopicPartition, value: CommittedOffset | int
) -> OffsetCommitRequestPartition:
    commit = value if isinstance(value, CommittedOffset) else CommittedOffset(value)
    return OffsetCommitRequestPartition(
        partition_index=place.partition,
        committed_offset=commit.offset,
        committed_leader_epoch=commit.leader_epoch,
        committed_metadata=commit.metadata,
    )


def _read_committed(
    answer: OffsetFetchResponse, version: int, group: str, link: Link
) -> dict[TopicPartition, CommittedOffset]:
    topics: list[OffsetFetchResponseTopic] = answer.topics
    code = answer.error_code
    if version >= _FETCH_GROUPS:
        row = next((row for row in answer.groups if row.group_id == group), None)
        topics, code = (row.topics, row.error_code) if row else ([], ErrorCode.NONE)
    _check(code, f"fetch offsets of group {group!r}", link)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in topics:
        for part in topic.partitions:
            place = TopicPartition(topic.name, part.partition_index)
            _check(part.error_code, f"offset of {place.text} for group {group!r}", link)
            if part.committed_offset >= 0:
                offsets[place] = CommittedOffset(
                    part.committed_offset, part.metadata or "", part.committed_leader_epoch
                )
    return offsets


async def _describe_consumer(link: Link, group: str, timeout_ms: int) -> GroupDescription | None:
    """Describe a KIP-848 group; None if the group is of another kind."""
    version = link.versions.choose(CONSUMER_GROUP_DESCRIBE)
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    answer = await link.call(CONSUMER_GROUP_DESCRIBE, version, request, timeout_ms)
    row = answer.groups[0]
    not_of_this_kind = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}
    if row.error_code in not_of_this_kind:
        return None
    _check(row.error_code, f"describe group {group!r}", link)
    return from_consumer(row)


async def _describe_classic(link: Link, group: str, timeout_ms: int) -> GroupDescription:
    version = link.versions.choose(DESCRIBE_GROUPS)
    answer = await link.call(
        DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[group]), timeout_ms
    )
    row = answer.groups[0]
    _check(row.error_code, f"describe group {group!r}", link)
    if row.group_state == "Dead":
        # Versions below 6 report a missing group like this.
        _check(ErrorCode.GROUP_ID_NOT_FOUND, f"describe group {group!r}", link)
    return from_classic(row)
