"""Cluster administration: topics, their partitions, configs and records, and brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rookery.client.configs import Configs
from rookery.client.connect.cluster import TopicView
from rookery.client.connect.connections import Link
from rookery.client.connect.metadata import PartitionLeader
from rookery.client.connect.retry import PersistentError
from rookery.client.connect.router import Router, by_topic
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.model.node import Node
from rookery.model.partition import TopicPartition
from rookery.wire.message import Api, Request, Response
from rookery.wire.messages.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from rookery.wire.messages.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from rookery.wire.messages.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from rookery.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest

T = TypeVar("T")

_DEFAULTS_FROM = 4  # the first CreateTopics version in which -1 means the broker's default


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int = -1
    """-1: the broker's num.partitions."""
    replication_factor: int = -1
    """-1: the broker's default.replication.factor."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings such as `retention.ms`."""
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The brokers of each partition, the preferred leader first; replaces the two numbers above."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster and its brokers."""

    cluster_id: str
    controller_id: int
    """-1 if there is none."""
    brokers: tuple[Node, ...]


class Admin:
    """Changes and describes the cluster; each call returns when it is done, or raises."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.configs = Configs(router)

    async def create_topic(
        self, name: str, partitions: int = -1, replication_factor: int = -1
    ) -> None:
        """Create one topic and wait until it can be used."""
        topic = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor)
        await self.create_topics([topic])

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Create topics and wait until every one of their partitions has a leader.

        Raises:
            ApiError: one was rejected, e.g. with TOPIC_ALREADY_EXISTS; others may exist now.
        """
        topics, tries = list(topics), _Tries()
        deadline = self._router.retrier.deadline(timeout_ms)

        async def ask(link: Link, request_ms: int) -> None:
            wants_defaults = any(min(t.partitions, t.replication_factor) < 0 for t in topics)
            lowest = _DEFAULTS_FROM if wants_defaults else 1 if validate_only else 0
            version = link.versions.choose(CREATE_TOPICS, lowest=lowest)
            request = CreateTopicsRequest(
                topics=[_creatable(topic) for topic in topics],
                timeout_ms=request_ms,
                validate_only=validate_only,
            )
            answer = await tries.call(link, CREATE_TOPICS, version, request, request_ms)
            exists = ErrorCode.TOPIC_ALREADY_EXISTS
            left = [r for r in answer.topics if not tries.settles(r.name, r.error_code, exists)]
            for row in left:
                _check(row.error_code, f"create topic {row.name!r}", row.error_message)

        names = [topic.name for topic in topics]
        await self._router.ask_controller(f"create topics {names}", ask, deadline)
        if not validate_only:
            for name in names:
                await self._wait_usable(name, deadline.left_ms or 1)

    async def delete_topics(self, names: Iterable[str], timeout_ms: int | None = None) -> None:
        """Delete topics with all their records.

        Raises:
            ApiError: one was rejected; others may have been deleted.
        """
        names, tries = list(names), _Tries()

        async def ask(link: Link, request_ms: int) -> None:
            version = link.versions.choose(DELETE_TOPICS)
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name) for name in names],
                topic_names=names,
                timeout_ms=request_ms,
            )
            answer = await tries.call(link, DELETE_TOPICS, version, request, request_ms)
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for row in answer.responses:
                self._router.metadata.forget(row.name or "")
            left = [
                r for r in answer.responses if not tries.settles(r.name or "", r.error_code, gone)
            ]
            for row in left:
                _check_there(row.error_code, f"delete topic {row.name!r}", row.error_message)

        await self._change(f"delete topics {names}", ask, timeout_ms)

    async def create_partitions(
        self, topic: str, total: int, timeout_ms: int | None = None
    ) -> None:
        """Increase a topic's partitions to the given total; keys will map to other partitions.

        Raises:
            ApiError: INVALID_PARTITIONS if it already has that many or more.
        """
        tries = _Tries()

        async def ask(link: Link, request_ms: int) -> None:
            version = link.versions.choose(CREATE_PARTITIONS)
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic, count=total)], timeout_ms=request_ms
            )
            answer = await tries.call(link, CREATE_PARTITIONS, version, request, request_ms)
            self._router.metadata.forget(topic)
            for row in answer.results:
                if tries.settles(topic, row.error_code, ErrorCode.INVALID_PARTITIONS):
                    continue
                _check_there(row.error_code, f"add partitions to {topic!r}", row.error_message)

        deadline = self._router.retrier.deadline(timeout_ms)
        await self._router.ask_controller(f"add partitions to {topic!r}", ask, deadline)
        await self._wait_usable(topic, deadline.left_ms or 1, total)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; LATEST (-1) deletes all.

        Returns:
            the new log start offset of each partition.
        """
        deadline = self._router.retrier.deadline(timeout_ms)

        async def ask(
            link: Link, group: list[PartitionLeader], request_ms: int
        ) -> Mapping[TopicPartition, int | ApiError]:
            version = link.versions.choose(DELETE_RECORDS)
            request = _delete_records_request(group, before, request_ms)
            answer = await link.call(DELETE_RECORDS, version, request, request_ms)
            return {
                TopicPartition(topic.name, row.partition_index): row.low_watermark
                if row.error_code is ErrorCode.NONE
                else ApiError(
                    row.error_code, f"delete records of {topic.name}-{row.partition_index}"
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self._router.ask_leaders("delete records", before, ask, deadline)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> list[str]:
        """Return the names of all topics, sorted."""
        deadline = self._router.retrier.deadline(timeout_ms)
        view = await self._router.retrier.run(
            "list topics", deadline, lambda: self._router.metadata.fetch_all(deadline)
        )
        return sorted(
            topic.name
            for topic in view.topics.values()
            if include_internal or not topic.is_internal
        )

    async def describe_topics(
        self, names: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicView]:
        """Return each topic's id, partitions, leaders and replicas, with fresh metadata."""
        deadline = self._router.retrier.deadline(timeout_ms)
        metadata, names = self._router.metadata, list(names)
        for name in names:
            metadata.forget(name)

        async def attempt() -> dict[str, TopicView]:
            await metadata.refresh(names, deadline)
            return {name: await metadata.topic(name, deadline) for name in names}

        return await self._router.retrier.run(f"describe topics {names}", deadline, attempt)

    async def describe_cluster(self, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers."""
        deadline = self._router.retrier.deadline(timeout_ms)

        async def ask(link: Link, request_ms: int) -> ClusterDescription:
            if not link.versions.offers(DESCRIBE_CLUSTER):
                view = await self._router.metadata.refresh([], deadline)
                brokers = tuple(view.nodes.values())
                return ClusterDescription(view.cluster_id or "", view.controller_id, brokers)
            version = link.versions.choose(DESCRIBE_CLUSTER)
            answer = await link.call(
                DESCRIBE_CLUSTER, version, DescribeClusterRequest(), request_ms
            )
            _check(answer.error_code, "describe the cluster", answer.error_message)
            rows = sorted(answer.brokers, key=lambda row: row.broker_id)
            brokers = tuple(Node(row.broker_id, row.host, row.port, row.rack) for row in rows)
            return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

        return await self._router.ask_any("describe the cluster", ask, deadline)

    async def _change(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], timeout_ms: int | None
    ) -> T:
        deadline = self._router.retrier.deadline(timeout_ms)
        return await self._router.ask_controller(what, ask, deadline)

    async def _wait_usable(self, name: str, timeout_ms: int, partitions: int = 1) -> None:
        """Wait until a topic's partitions have leaders; brokers learn of the topic one by one."""
        deadline = self._router.retrier.deadline(timeout_ms)
        metadata = self._router.metadata

        async def attempt() -> None:
            metadata.forget(name)
            topic = await metadata.topic(name, deadline)
            if len(topic.available) < max(partitions, len(topic.partitions)):
                raise ApiError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r}: some have no leader yet"
                )

        await self._router.retrier.run(f"wait for topic {name!r}", deadline, attempt)


class _Tries:
    """The tries of one change; an earlier try may have succeeded without our knowing."""

    def __init__(self) -> None:
        self._is_in_doubt = False
        self._done: set[str] = set()

    async def call(
        self,
        link: Link,
        api: Api[Request, Response],
        version: int,
        request: Request,
        timeout_ms: int,
    ) -> Response:
        """Send a request and return the response."""
        try:
            return await link.call(api, version, request, timeout_ms)
        except Unavailable:
            self._is_in_doubt = True
            raise

    def settles(self, name: str, code: ErrorCode, done: ErrorCode) -> bool:
        """Return whether a change is done; the code `done` means that an earlier try did it."""
        if code is ErrorCode.REQUEST_TIMED_OUT:
            # The broker did not wait for completion, but the controller continues.
            self._is_in_doubt = True
        is_done = code is ErrorCode.NONE or (
            code is done and (self._is_in_doubt or name in self._done)
        )
        if is_done:
            self._done.add(name)
        return is_done


def _check(code: ErrorCode, what: str, message: str | None) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {message or code.sentence}")


def _check_there(code: ErrorCode, what: str, message: str | None) -> None:
    """Check a code, but do not wait for a missing topic to appear."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise PersistentError(code, f"{what}: there is no such topic")
    _check(code, what, message)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _delete_records_request(
    group: list[PartitionLeader], before: Mapping[TopicPartition, int], timeout_ms: int
) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        timeout_ms=timeout_ms,
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(
                        partition_index=row.place.partition, offset=before[row.place]
                    )
                    for row in rows
                ],
            )
            for topic, _, rows in by_topic(group)
        ],
    )
