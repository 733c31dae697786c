"""Answers fetches of virtual partitions from the logs that all clients share.

Fetch sessions are not offered: the session id is always 0, so that clients send whole fetches. The
plain partitions of a fetch are asked of their leaders at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from rookery.clock import loop_seconds
from rookery.errors import ApiError, Corrupt, Error, ErrorCode, Unavailable
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.virtual.physicallog import PhysicalLog, SlotRead
from rookery.proxy.virtual.topicbook import TopicEntry, TopicKind
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.message import Message, Parts
from rookery.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

READ_COMMITTED: Final = 1
"""The isolation level of readers that see no open or aborted transaction."""
_GRACE_SECONDS: Final = 0.05
"""How long records of virtual partitions wait for those of plain ones."""
_CATCH_UP_SECONDS: Final = 10.0
"""How long a fetch waits for the end of a log that is being read for the first time."""


class VirtualRead(NamedTuple):
    """A partition that a fetch names."""

    topic: str
    part: FetchPartition
    entry: TopicEntry


class VirtualFetch:
    """The fetches of one client."""

    def __init__(
        self,
        topics: VirtualTopics,
        room: Callable[[], int],
        fetch_plain: Callable[[NodeCall], Awaitable[Message | None]],
    ) -> None:
        """Create it for one client.

        Args:
            topics: the topics with virtual partitions.
            room: returns how many bytes a response may have.
            fetch_plain: answers a fetch of plain partitions.
        """
        self._topics = topics
        self._room = room
        self._fetch_plain = fetch_plain
        self._ends: dict[tuple[str, int], PartitionData] = {}
        """The last results of the plain partitions of a fetch, without records."""

    async def fetch(self, call: NodeCall) -> FetchResponse:
        """Answer one fetch."""
        request: FetchRequest = call.request
        if request.session_id and request.session_epoch != -1:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        book = self._topics.book
        await book.check(book.select_governed(topic.topic for topic in request.topics))
        wanted: list[VirtualRead] = []
        plain: list[FetchTopic] = []
        for topic in request.topics:
            entry = book.find(topic.topic)
            if entry is None:
                plain.append(topic)
            else:
                wanted += [VirtualRead(topic.topic, part, entry) for part in topic.partitions]
        whole = request.replace(
            session_id=0, session_epoch=-1, topics=plain, forgotten_topics_data=[]
        )
        if not wanted:
            return await self._ask_plain(call, whole)
        if not plain:
            return _response(await self._collect(request, wanted))
        return await self._fetch_both(call, whole, wanted)

    async def _ask_plain(self, call: NodeCall, request: FetchRequest) -> FetchResponse:
        response = await self._fetch_plain(NodeCall(call.passage, call.client_id, request))
        assert isinstance(response, FetchResponse)  # noqa: S101 (the API's own response)
        response.session_id = 0
        return response

    async def _fetch_both(
        self, call: NodeCall, request: FetchRequest, wanted: list[VirtualRead]
    ) -> FetchResponse:
        """Answer with the part that arrives first; the next fetch returns the other one.

        The records of an abandoned plain fetch are kept for the next one.
        """
        plain = asyncio.create_task(self._ask_plain(call, request))
        own = asyncio.create_task(self._collect(request, wanted))
        try:
            await asyncio.wait([plain, own], return_when=asyncio.FIRST_COMPLETED)
            # The answer must name every partition.
            await asyncio.wait([plain], timeout=_GRACE_SECONDS if self._knows(request) else None)
        finally:
            for task in (plain, own):
                task.cancel()
            done = await asyncio.gather(plain, own, return_exceptions=True)
        if isinstance(done[0], FetchResponse):
            joined = done[0]
            self._note_ends(joined)
        elif plain.cancelled():
            joined = self._nothing_new(request)
        else:
            raise Unavailable(str(done[0]))
        if isinstance(done[1], list):
            results = done[1]
        else:
            results = await self._read_all(request, wanted)
        joined.responses = [*joined.responses, *_response(results).responses]
        return joined

    def _knows(self, request: FetchRequest) -> bool:
        """Return whether the ends of all plain partitions of a fetch are known."""
        return all(
            (topic.topic, part.partition) in self._ends
            for topic in request.topics
            for part in topic.partitions
        )

    def _note_ends(self, response: FetchResponse) -> None:
        self._ends = {
            (topic.topic, data.partition_index): data.replace(records=b"")
            for topic in response.responses
            for data in topic.partitions
            if not data.error_code
        }

    def _nothing_new(self, request: FetchRequest) -> FetchResponse:
        rows = [
            (topic.topic, self._ends[topic.topic, part.partition])
            for topic in request.topics
            for part in topic.partitions
        ]
        return _response(rows)

    # Virtual partitions.

    async def _collect(
        self, request: FetchRequest, wanted: list[VirtualRead]
    ) -> list[tuple[str, PartitionData]]:
        """Read all partitions; wait for records as long as the request allows."""
        deadline = loop_seconds() + max(request.max_wait_ms, 0) / 1000
        event = asyncio.Event()
        with ExitStack() as stack:
            is_listening = False
            while True:
                event.clear()
                results = await self._read_all(request, wanted)
                size = sum(_size(data) for _, data in results)
                is_enough = 0 < size >= request.min_bytes
                if is_enough or any(data.error_code for _, data in results):
                    return results
                if not is_listening:
                    is_listening = True
                    for log in self._logs(wanted):
                        stack.enter_context(log.listen(event))
                    if request.max_wait_ms <= 0:
                        await self._catch_up(wanted)
                        return await self._read_all(request, wanted)
                    continue
                try:
                    async with asyncio.timeout_at(deadline):
                        await event.wait()
                except TimeoutError:
                    return results

    def _logs(self, wanted: list[VirtualRead]) -> set[PhysicalLog]:
        logs: set[PhysicalLog] = set()
        for each in wanted:
            if each.entry.kind is TopicKind.VIRTUAL:
                place = each.entry.rule.remapper.virtual_to_physical(each.part.partition)
                logs.add(self._topics.log(each.entry, place.physical_partition))
        return logs

    async def _catch_up(self, wanted: list[VirtualRead]) -> None:
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await asyncio.gather(*(log.catch_up() for log in self._logs(wanted)))
        except (Error, TimeoutError):
            return

    async def _read_all(
        self, request: FetchRequest, wanted: list[VirtualRead]
    ) -> list[tuple[str, PartitionData]]:
        """Read each partition up to the limits of the request, without a wait for new records."""
        left = min(request.max_bytes, self._room())
        is_committed = request.isolation_level == READ_COMMITTED
        is_empty = True
        results: list[tuple[str, PartitionData]] = []
        for topic, part, entry in wanted:
            limit = min(part.partition_max_bytes, left)
            try:
                data = await self._read(
                    entry, part, limit, is_first=is_empty, is_committed=is_committed
                )
            except ApiError as error:
                data = _refusal(part, error.code)
            except Corrupt:
                data = _refusal(part, ErrorCode.CORRUPT_MESSAGE)
            except (Error, TimeoutError):
                data = _refusal(part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            size = _size(data)
            left -= size
            is_empty = is_empty and not size
            results.append((topic, data))
        return results

    async def _read(
        self,
        entry: TopicEntry,
        part: FetchPartition,
        limit: int,
        *,
        is_first: bool,
        is_committed: bool,
    ) -> PartitionData:
        """Read one partition.

        Args:
            entry: of its topic.
            part: the partition and the offset.
            limit: the most bytes, but for the first batch of a response.
            is_first: whether the response has no batch yet.
            is_committed: whether to stop before open transactions.

        Raises:
            ApiError: it is refused, with Kafka's code.
            Corrupt: its log is refused.
            Unavailable, TimeoutError: its leader does not answer.
        """
        if entry.kind is not TopicKind.VIRTUAL:
            raise ApiError(refusal_of(entry))
        physical, slot = entry.rule.remapper.virtual_to_physical(part.partition)
        log, offset = self._topics.log(entry, physical), part.fetch_offset
        if not 0 <= offset <= log.index.counter(slot):
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await log.catch_up()
            if not 0 <= offset <= log.index.counter(slot):
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= log.index.counter(slot):
            log.raise_trouble()
        max_bytes = max(limit, 1) if is_first else limit
        read = await log.read(slot, offset, max_bytes, is_committed=is_committed)
        if not is_first and sum(map(len, read.batches)) > limit:
            read = read._replace(batches=[])
        return _result(part, read, is_committed=is_committed)


def _result(part: FetchPartition, read: SlotRead, *, is_committed: bool) -> PartitionData:
    aborted = [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first)
        for each in read.aborted
    ]
    return PartitionData(
        partition_index=part.partition,
        error_code=ErrorCode.NONE,
        high_watermark=read.end,
        last_stable_offset=read.stable,
        log_start_offset=0,
        aborted_transactions=aborted if is_committed else None,
        records=Parts(read.batches) if read.batches else b"",
    )


def refusal_of(entry: TopicEntry) -> ErrorCode:
    """Return the code for requests that name a topic that is not served."""
    if entry.kind is TopicKind.MISSING:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _size(data: PartitionData) -> int:
    records = data.records
    return sum(map(len, records)) if isinstance(records, Parts) else len(records or b"")


def _refusal(part: FetchPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=part.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _response(results: list[tuple[str, PartitionData]]) -> FetchResponse:
    topics: dict[str, FetchableTopicResponse] = {}
    for name, data in results:
        topic = topics.setdefault(name, FetchableTopicResponse(topic=name, partitions=[]))
        topic.partitions.append(data)
    return FetchResponse(responses=list(topics.values()))
