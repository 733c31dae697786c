"""Reads records from many partitions, grouped by leader, or from one partition as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from rookery.client.connect.connections import Lane, Link
from rookery.client.connect.metadata import PartitionLeader
from rookery.client.connect.retry import Deadline, is_stale, may_retry
from rookery.client.connect.router import Router, by_node, by_topic
from rookery.client.offsets import OffsetQueries
from rookery.errors import ApiError, Error, ErrorCode, Unavailable
from rookery.model.control import ControlRecordType
from rookery.model.node import Node
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition
from rookery.model.uuid import ZERO
from rookery.records import batches, recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.recordcodec import Record
from rookery.wire.message import Parts, Records
from rookery.wire.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_OLDEST: Final = 4  # the first version with batches of magic 2
_LAST_BY_NAME: Final = 12
# The network time allowed in addition to the broker's wait.
_WAY_MS: Final = 5_000


class Isolation(IntEnum):
    """Which records of transactions a reader sees."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How much to read per fetch, and how long to wait for it."""

    max_wait_ms: int = 500
    """How long a broker may delay a fetch that finds less than `min_bytes`."""
    min_bytes: int = 1
    """A broker waits if it has fewer bytes."""
    max_bytes: int = 50 * 1024 * 1024
    """For all partitions of one broker; the first batch is returned whole even if it is larger."""
    partition_max_bytes: int = 1024 * 1024
    """For one partition, likewise."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    """Whether records of open and aborted transactions are left out."""


class FetchedBatch(NamedTuple):
    """One batch as a view into the response: its header and its bytes."""

    header: BatchHeader
    data: memoryview


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of a fetch for one partition."""

    place: TopicPartition
    position: int
    """The requested offset."""
    data: memoryview
    """Whole batches, the first of which may start below `position`, and a remainder."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of aborted transactions; only for READ_COMMITTED."""

    def batches(self) -> Iterator[FetchedBatch]:
        """Iterate over the verified batches, including control batches, without copying."""
        for header in batches.check_fetched(self.data):
            yield FetchedBatch(header, self.data[header.position : header.end])

    def records(self) -> Iterator[Record]:
        """Iterate over the records from `position` on, without markers and aborted records."""
        skipped = AbortedProducers(self.aborted)
        for header in batches.check_fetched(self.data):
            if header.is_control:
                skipped.on_control(header, self.data)
            elif header.last_offset >= self.position and not skipped.has(header):
                for record in recordcodec.read(self.data, header):
                    if record.offset >= self.position:
                        yield record

    @property
    def next_offset(self) -> int:
        """The next offset to read, from batch headers; the code that reads them verifies them."""
        headers = batches.outline(self.data)
        return max(self.position, headers[-1].last_offset + 1) if headers else self.position


class AbortedProducers:
    """Tracks which producers have an aborted transaction, while batches are passed in order."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda row: row[1], reverse=True)
        self._producers: set[int] = set()

    def has(self, header: BatchHeader) -> bool:
        """Return whether a batch belongs to an aborted transaction."""
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._producers.add(self._coming.pop()[0])
        return header.is_transactional and header.producer_id in self._producers

    def on_control(self, header: BatchHeader, data: memoryview) -> None:
        """End a producer's aborted transaction at its abort marker."""
        for record in recordcodec.read(data, header):
            if recordcodec.control(record).type is ControlRecordType.ABORT:
                # The transaction may have been opened and aborted without any records.
                self.has(header)
                self._producers.discard(header.producer_id)


class Fetcher:
    """Reads from partition leaders."""

    def __init__(self, router: Router, offsets: OffsetQueries) -> None:
        self._router = router
        self._offsets = offsets

    async def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        settings: FetchSettings | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, FetchResult]:
        """Read from an offset of each partition; all leaders are queried concurrently.

        It returns when all leaders have answered, with records or empty after `max_wait_ms`.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE, with a message that names the partition's offsets; or
                another error.
            Unavailable: the deadline expired.
        """
        settings = settings or FetchSettings()
        deadline = self._router.retrier.deadline(timeout_ms)
        pending, done = dict(positions), dict[TopicPartition, FetchResult]()

        async def attempt() -> dict[TopicPartition, FetchResult]:
            located = await self._router.metadata.locate(pending, deadline)
            groups = [
                self._fetch_from(group, pending, settings, deadline) for group in by_node(located)
            ]
            results = [result for answer in await asyncio.gather(*groups) for result in answer]
            problem = self._sort_out(results, pending, done)
            if problem is not None:
                raise problem
            return done

        names = ", ".join(place.text for place in list(positions)[:3])
        try:
            return await self._router.retrier.run(
                f"fetch from {names}", deadline, attempt, self._router.on_error
            )
        except ApiError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise await self._explain(positions, error) from None
            raise

    async def read(
        self,
        place: TopicPartition,
        offset: int = EARLIEST,
        *,
        follow: bool = False,
        settings: FetchSettings | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Iterate over a partition's records from an offset, EARLIEST or LATEST.

        It ends at the end that the partition had at the start; with `follow`, it never ends.
        """
        settings = settings or FetchSettings()
        position = await self._offsets.resolve(place, offset)
        committed = settings.isolation is Isolation.READ_COMMITTED
        end = None if follow else await self._offsets.end(place, committed=committed)
        upcoming = self._start(place, position, end, settings)
        try:
            while upcoming is not None:
                fetched = (await upcoming)[place]
                position = fetched.next_offset
                # The next fetch is in flight while the caller processes this one.
                upcoming = self._start(place, position, end, settings)
                for record in fetched.records():
                    if end is None or record.offset < end:
                        yield record
        finally:
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)

    def _start(
        self, place: TopicPartition, position: int, end: int | None, settings: FetchSettings
    ) -> asyncio.Task[dict[TopicPartition, FetchResult]] | None:
        if end is not None and position >= end:
            return None
        return asyncio.create_task(self.fetch({place: position}, settings))

    async def _fetch_from(
        self,
        group: list[PartitionLeader],
        positions: Mapping[TopicPartition, int],
        settings: FetchSettings,
        deadline: Deadline,
    ) -> list[FetchResult | _Problem]:
        try:
            link = await self._router.connections.get(group[0].node.address, Lane.FETCH)
            timeout_ms = deadline.cap(
                settings.max_wait_ms + self._router.settings.request_timeout_ms
            )
            version, request = _request(link, group, positions, settings)
            wait_ms = min(request.max_wait_ms, max(0, deadline.left_ms - _WAY_MS))
            request.max_wait_ms = wait_ms
            response = await link.call(FETCH, version, request, timeout_ms)
        except Error as error:
            return [_Problem(row.place, error) for row in group]
        if response.error_code is not ErrorCode.NONE:
            refusal = ApiError(response.error_code, f"broker {link.name} refused to fetch")
            return [_Problem(row.place, refusal) for row in group]
        return self._read(link, group, positions, response)

    def _read(
        self,
        link: Link,
        group: list[PartitionLeader],
        positions: Mapping[TopicPartition, int],
        response: FetchResponse,
    ) -> list[FetchResult | _Problem]:
        names = {row.topic_id: row.place.topic for row in group}
        self._router.metadata.learn_nodes(
            [Node(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints]
        )
        answers = {
            TopicPartition(topic.topic or names.get(topic.topic_id, ""), data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        results: list[FetchResult | _Problem] = []
        for row in group:
            data = answers.get(row.place)
            if data is None:
                silent = Unavailable(f"broker {link.name} returned nothing for {row.place.text}")
                results.append(_Problem(row.place, silent))
            else:
                results.append(self._result(link, row.place, positions[row.place], data))
        return results

    def _result(
        self, link: Link, place: TopicPartition, position: int, data: PartitionData
    ) -> FetchResult | _Problem:
        code = data.error_code
        if code is ErrorCode.NONE:
            return _make_result(place, position, data)
        hint = data.current_leader
        is_news = hint is not None and self._router.metadata.learn_leader(
            place, hint.leader_id, hint.leader_epoch
        )
        error = ApiError(
            code, f"{place.text} at offset {position} from {link.name}: {code.sentence}"
        )
        return _Problem(place, error, is_answered_for=is_news)

    def _sort_out(
        self,
        results: list[FetchResult | _Problem],
        pending: dict[TopicPartition, int],
        done: dict[TopicPartition, FetchResult],
    ) -> Error | None:
        """Store the results; return the problem to handle, if there is one."""
        problems: list[Error] = []
        for result in results:
            if isinstance(result, FetchResult):
                done[result.place] = result
                del pending[result.place]
                continue
            problems.append(result.error)
            if is_stale(result.error) and not result.is_answered_for:
                self._router.metadata.forget(result.place.topic)
        final = [error for error in problems if not may_retry(error)]
        return next(iter(final or problems), None)

    async def _explain(self, positions: Mapping[TopicPartition, int], error: ApiError) -> ApiError:
        """Build an error that names the partition and its offsets."""
        start = await self._offsets.find(dict.fromkeys(positions, EARLIEST))
        end = await self._offsets.find(dict.fromkeys(positions, LATEST))
        for place, position in positions.items():
            first, last = start[place].offset, end[place].offset
            if not first <= position <= last:
                return ApiError(
                    error.code,
                    f"{place.text} has no offset {position}: it holds {first} to {last - 1}, and "
                    f"the next will be {last}; read from EARLIEST, LATEST or one of these",
                )
        return error


class _Problem(NamedTuple):
    """Why a partition could not be read."""

    place: TopicPartition
    error: Error
    is_answered_for: bool = False


def _request(
    link: Link,
    group: list[PartitionLeader],
    positions: Mapping[TopicPartition, int],
    settings: FetchSettings,
) -> tuple[int, FetchRequest]:
    has_ids = all(row.topic_id != ZERO for row in group)
    version = link.versions.choose(
        FETCH, lowest=_OLDEST, highest=None if has_ids else _LAST_BY_NAME
    )
    request = FetchRequest(
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=settings.isolation,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=row.place.partition,
                        current_leader_epoch=row.leader_epoch,
                        fetch_offset=positions[row.place],
                        partition_max_bytes=settings.partition_max_bytes,
                    )
                    for row in rows
                ],
            )
            for topic, topic_id, rows in by_topic(group)
        ],
    )
    return version, request


def _view(records: Records | None) -> memoryview:
    # Only requests consist of several parts; a response is always in one piece.
    assert not isinstance(records, Parts)  # noqa: S101 (for the type checker)
    return memoryview(records or b"")


def _make_result(place: TopicPartition, position: int, data: PartitionData) -> FetchResult:
    return FetchResult(
        place=place,
        position=position,
        data=_view(data.records),
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        aborted=tuple(
            (row.producer_id, row.first_offset) for row in data.aborted_transactions or ()
        ),
    )
