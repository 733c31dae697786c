"""Requests of the proxy's own to the upstream, shared by all clients of a virtual cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rookery.client.connect.versions import Versions, negotiate
from rookery.errors import Error, Unavailable
from rookery.net.upstream import Upstream
from rookery.proxy.access.upstreamaccess import CLIENT_ID
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.lookup import GROUP
from rookery.proxy.nodes.topology import NO_BROKER
from rookery.wire.message import Api, Request, Response
from rookery.wire.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)

_TIMEOUT_MS: Final = 10_000
_FIRST_WITH_IDS: Final = 10
_FIRST_FETCH_WITH_IDS: Final = 13
_READ_BYTES: Final = 4 << 20


class UpstreamChannel:
    """One connection to a broker, opened on demand and reopened after it breaks."""

    def __init__(self, directory: NodeDirectory) -> None:
        self._directory = directory
        self._broker_id = NO_BROKER
        self._open: tuple[Upstream, Versions] | None = None
        self._opening = asyncio.Lock()

    async def call(
        self,
        broker_id: int,
        api: Api[Request, Response],
        request: Request,
        *,
        lowest: int = 0,
        wait_ms: int = 0,
    ) -> Response:
        """Send a request to a broker; to any for `NO_BROKER`.

        Raises:
            Unavailable: the broker does not answer.
            ApiError: it does not know the API.
        """
        upstream, versions = await self._connect(broker_id)
        version = versions.choose(api, lowest=lowest)
        try:
            return await upstream.call(api, version, request, _TIMEOUT_MS + wait_ms)
        except Error as error:
            upstream.close()
            raise Unavailable(str(error)) from error
        except asyncio.CancelledError:
            # Late answers must not delay the next request.
            upstream.close()
            raise

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._open is not None:
            self._open[0].close()
            self._open = None

    async def _connect(self, broker_id: int) -> tuple[Upstream, Versions]:
        async with self._opening:
            current = self._open if broker_id == self._broker_id else None
            if current is not None and not current[0].is_closed:
                return current
            self.close()
            upstream = await self._directory.open(broker_id)
            try:
                versions = await negotiate(upstream, CLIENT_ID, {}, _TIMEOUT_MS)
            except BaseException:
                upstream.close()
                raise
            self._broker_id, self._open = broker_id, (upstream, versions)
            return self._open


class UpstreamCalls:
    """Requests that any broker answers, and connections to leaders."""

    def __init__(self, directory: NodeDirectory) -> None:
        self.directory = directory
        self._any = UpstreamChannel(directory)
        self._offsets_partitions = 0

    def close(self) -> None:
        """Close the connection for any broker."""
        self._any.close()

    async def ask_any(
        self, api: Api[Request, Response], request: Request, lowest: int = 0
    ) -> Response:
        """Ask any broker.

        Raises:
            Unavailable: none answers.
            ApiError: it does not know the API.
        """
        return await self._any.call(NO_BROKER, api, request, lowest=lowest)

    async def describe_topics(self, names: Sequence[str]) -> list[MetadataResponseTopic]:
        """Ask for topics, and learn their leaders.

        Raises:
            Unavailable: no broker answers.
            ApiError: the upstream has no topic ids.
        """
        response = await self.ask_any(
            METADATA,
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=False,
            ),
            _FIRST_WITH_IDS,
        )
        self.directory.learn_metadata(response)
        return response.topics

    async def find_leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition.

        Raises:
            Unavailable: it has none at the moment.
        """
        topology = self.directory.topology
        if not topology.is_certain(topic, [partition]):
            await self.describe_topics([topic])
        leader = topology.leader(topic, partition)
        if leader == NO_BROKER:
            raise Unavailable(f"{topic}-{partition} has no leader at the moment")
        return leader

    def share_coordinator(self, group_id: str, shadows: Iterable[str]) -> None:
        """Record the coordinator of a group, if it is known, as that of its shadow groups."""
        coordinators = self.directory.coordinators
        broker_id = coordinators.find(GROUP, group_id)
        if broker_id is not None:
            for shadow in shadows:
                coordinators.learn(GROUP, shadow, broker_id)

    async def count_offsets_partitions(self) -> int:
        """Return the number of partitions that Kafka keeps committed offsets in.

        Raises:
            Unavailable: it is not known yet.
        """
        if not self._offsets_partitions:
            [row] = await self.describe_topics(["__consumer_offsets"])
            if row.error_code or not row.partitions:
                raise Unavailable("the upstream has no topic for committed offsets yet")
            self._offsets_partitions = len(row.partitions)
        return self._offsets_partitions


class LogPlace(NamedTuple):
    """A physical partition."""

    topic: str
    topic_id: bytes
    partition: int


class LeaderReader:
    """A connection to the leader of one physical partition."""

    def __init__(self, calls: UpstreamCalls, place: LogPlace) -> None:
        self._calls = calls
        self._place = place
        self._channel = UpstreamChannel(calls.directory)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    async def fetch(self, offset: int, epoch: int, wait_ms: int) -> PartitionData:
        """Read from an offset on.

        Args:
            offset: the physical offset.
            epoch: the leader epoch of the batch before it, so that the broker can see whether its
                log still has that batch.
            wait_ms: how long the broker waits for records.

        Raises:
            Unavailable: the leader does not answer.
            ApiError: the upstream has no topic ids.
        """
        place = self._place
        leader = await self._calls.find_leader(place.topic, place.partition)
        part = FetchPartition(
            partition=place.partition,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            partition_max_bytes=_READ_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_READ_BYTES,
            topics=[FetchTopic(topic_id=place.topic_id, partitions=[part])],
        )
        response = await self._channel.call(
            leader, FETCH, request, lowest=_FIRST_FETCH_WITH_IDS, wait_ms=wait_ms
        )
        if response.error_code:
            raise Unavailable(response.error_code.sentence)
        for topic in response.responses:
            for data in topic.partitions:
                return data
        raise Unavailable("the broker has left the partition out")

    async def find_offset(self, time: int) -> int:
        """Return the offset for a time of ListOffsets.

        Raises:
            Unavailable: the leader does not answer.
        """
        place = self._place
        leader = await self._calls.find_leader(place.topic, place.partition)
        part = ListOffsetsPartition(partition_index=place.partition, timestamp=time)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=place.topic, partitions=[part])]
        )
        response = await self._channel.call(leader, LIST_OFFSETS, request, lowest=1)
        [row] = response.topics[0].partitions
        if row.error_code:
            self._calls.directory.topology.doubt(place.topic)
            raise Unavailable(row.error_code.sentence)
        return row.offset
