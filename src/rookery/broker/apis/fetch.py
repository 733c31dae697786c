"""Fetch: batches of many partitions, now or as soon as there are any.

    session ──► collect (memory) ──┬─ enough, or an error ─────────────────────────► answer
                    ▲              ├─ too little: wait for a commit ──┐               ▲
                    └──────────────┼──────────────────────────────────┘               │
                                   ├─ something looks wrong: barrier, collect again   │
                                   └─ on disk: read, some partitions at a time ───────┘

Everything that an answer says comes from one version of the state. Whoever names a replica id is a
reader like any other: nothing here is moved by a fetch.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from rookery.broker.call import Call
from rookery.broker.leaders import successor
from rookery.broker.registry import handles
from rookery.broker.sessions import Session, Sessions, Watched
from rookery.broker.waiting import Parked, Waiting
from rookery.cluster.state import aborted
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, Corrupt, Error, ErrorCode
from rookery.log.rereads import SureReader
from rookery.log.tail import Key, Slice
from rookery.log.traffic import READ
from rookery.wire.message import ZERO_UUID, Parts
from rookery.wire.messages.fetch import (
    FETCH,
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

log = logging.getLogger(__name__)

# What one answer holds at most, whatever the client says (Kafka's fetch.max.bytes of the broker).
MAX_BYTES: Final = 55 * 1024 * 1024
# Partitions that are read from disk at the same time, for all clients together.
_READS_AT_ONCE: Final = 16
_NONE: Final = ErrorCode.NONE

Future = asyncio.Future[FetchResponse | None]
Answer = FetchResponse | Future | Coroutine[Any, Any, FetchResponse | None]


class Readers:
    """What the fetches of one broker share."""

    def __init__(self, call: Call) -> None:
        services = call.services
        self.sessions = Sessions(services.clock, services.random)
        self.reader = SureReader(services.reader, services.replica)
        self.disk = asyncio.Semaphore(_READS_AT_ONCE)
        self.tasks: set[asyncio.Task[None]] = set()


_readers: WeakKeyDictionary[Waiting, Readers] = WeakKeyDictionary()


def readers(call: Call) -> Readers:
    """Return what the fetches of this broker share."""
    found = _readers.get(call.services.waiting)
    if found is None:
        found = _readers[call.services.waiting] = Readers(call)
    return found


@handles(FETCH, versions=range(4, 19))
def fetch(call: Call, request: FetchRequest) -> Answer:
    """Answer with what is there; wait if that is too little and the client allows it."""
    try:
        session = readers(call).sessions.resume(request, call.version)
    except ApiError as error:
        # Kafka names neither the session nor its partitions here.
        return FetchResponse(error_code=error.code, responses=[])
    started = _Fetch(call, request, session)
    return started.start_later() if call.connection.answers.is_full else started.start()


class _Wanted(NamedTuple):
    """A partition whose records must be read, from memory or from disk."""

    answer: PartitionData
    key: Key
    partition: Partition
    offset: int
    limit: int
    is_first: bool
    until: int
    """Where readers of committed records have to stop."""
    aborted: array[int]
    """Which transactions those readers have to skip, as of the same version of the state."""


class _Collected:
    """What one look at the state and the memory has found."""

    __slots__ = (
        "answers", "cold", "endpoints", "has_error", "is_doubtful", "left", "partitions", "sent",
        "size",
    )  # fmt: skip

    def __init__(self, left: int) -> None:
        self.answers: list[tuple[Watched, PartitionData]] = []
        self.partitions: dict[Key, Partition] = {}
        self.cold: list[_Wanted] = []
        self.sent: list[tuple[bytes, int, int]] = []
        """Topic id, records and bytes of what memory had."""
        self.endpoints: dict[int, NodeEndpoint] = {}
        self.left = left
        self.size = 0
        self.has_error = False
        self.is_doubtful = False
        """Something is refused that a newer state might grant."""


class _Fetch:
    """One fetch under way."""

    __slots__ = ("call", "deadline", "future", "parked", "request", "session", "undo")

    def __init__(self, call: Call, request: FetchRequest, session: Session) -> None:
        self.call = call
        self.request = request
        self.session = session
        self.deadline = -1.0
        self.parked: Parked | None = None

    def start(self) -> Answer:
        """Answer at once, if nothing has to be waited for."""
        found = self._collect()
        if found.is_doubtful:
            return self._certain()
        if self._is_too_little(found):
            self._park(found)
            return self.future
        return self._read(found) if found.cold else self._answer(found)

    async def start_later(self) -> FetchResponse | None:
        """Answer when other clients have read enough of what they were sent."""
        await self.call.connection.answers.wait()
        if self.call.connection.is_closing:
            return None
        answer = self.start()
        return answer if isinstance(answer, FetchResponse) else await answer

    # Looking.

    def _collect(self) -> _Collected:
        room = self.call.connection.answers.room()
        found = _Collected(min(self.request.max_bytes, MAX_BYTES, room))
        topics = self.call.state.topics
        by_key: dict[Any, Topic] = topics.by_id if self.session.uses_ids else topics.by_name
        for watched in self.session.partitions.values():
            topic = by_key.get(watched.topic)
            if topic is None or not 0 <= watched.index < len(topic.partitions):
                found.is_doubtful = True
                is_id = topic is None and self.session.uses_ids
                unknown = (
                    ErrorCode.UNKNOWN_TOPIC_ID if is_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                self._refuse(found, watched, unknown)
            elif self.call.services.is_draining:
                self._send_on(found, watched, topic)
            else:
                self._look(found, watched, topic)
        return found

    def _look(self, found: _Collected, watched: Watched, topic: Topic) -> None:
        partition = topic.partitions[watched.index]
        end, stable, offset = partition.next_offset, partition.last_stable_offset, watched.offset
        if watched.leader_epoch > partition.leader_epoch:
            found.is_doubtful = True
            self._refuse(found, watched, ErrorCode.UNKNOWN_LEADER_EPOCH, partition)
            return
        if not partition.log_start <= offset <= end:
            found.is_doubtful |= offset > end
            self._refuse(found, watched, ErrorCode.OFFSET_OUT_OF_RANGE, partition)
            return
        key = (topic.id, watched.index)
        found.partitions[key] = partition
        if offset == end and self._is_told(watched, partition):
            return
        answer = PartitionData(
            partition_index=watched.index,
            error_code=_NONE,
            high_watermark=end,
            last_stable_offset=stable,
            log_start_offset=partition.log_start,
            aborted_transactions=[] if self.request.isolation_level else None,
            records=b"",
        )
        found.answers.append((watched, answer))
        readable = stable if self.request.isolation_level else end
        if offset < readable and (found.left > 0 or not found.size):
            self._take(found, answer, key, partition, watched)

    def _is_told(self, watched: Watched, partition: Partition) -> bool:
        """Whether the client knows all there is to say; most of a large session is like that."""
        return (
            self.session.is_incremental
            and watched.high_watermark == partition.next_offset
            and watched.log_start == partition.log_start
        )

    def _take(
        self,
        found: _Collected,
        answer: PartitionData,
        key: Key,
        partition: Partition,
        watched: Watched,
    ) -> None:
        """Take records from memory, or note that they must be read."""
        limit = min(found.left, watched.max_bytes)
        is_first = not found.size
        is_committed = self.request.isolation_level
        until = partition.last_stable_offset if is_committed else partition.next_offset
        records = self.call.services.reader.read_now(
            key, partition, watched.offset, limit, whole_first=is_first, until=until
        )
        cold = _Wanted(
            answer, key, partition, watched.offset, limit, is_first, until, partition.aborted
        )
        if records is None:
            found.cold.append(cold)
            size = _available(cold, max(limit, 1))
        else:
            size = records.size
            if size:
                _give(cold, records)
                found.sent.append((key[0], records.next_offset - watched.offset, size))
        found.size += size
        found.left -= size

    def _refuse(
        self,
        found: _Collected,
        watched: Watched,
        code: ErrorCode,
        partition: Partition | None = None,
    ) -> PartitionData:
        end = partition.next_offset if partition else -1
        stable = partition.last_stable_offset if partition else -1
        answer = PartitionData(
            partition_index=watched.index,
            error_code=code,
            high_watermark=end,
            last_stable_offset=stable,
            log_start_offset=partition.log_start if partition else -1,
            aborted_transactions=None if partition and not self.request.isolation_level else [],
            records=b"",
        )
        found.has_error = True
        found.answers.append((watched, answer))
        return answer

    def _send_on(self, found: _Collected, watched: Watched, topic: Topic) -> None:
        """Send the client on to who comes after this broker."""
        answer = self._refuse(found, watched, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        heir = successor(self.call, topic, watched.index)
        if heir is not None:
            broker = heir.broker
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=broker.node_id, leader_epoch=heir.leader_epoch
            )
            found.endpoints[broker.node_id] = NodeEndpoint(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )

    async def _certain(self) -> FetchResponse | None:
        """Look again with everything applied that other brokers have written."""
        await self.call.services.replica.barrier()
        found = self._collect()
        if self._is_too_little(found):
            self._park(found)
            return await self.future
        return await self._read(found)

    # Waiting.

    def _is_too_little(self, found: _Collected) -> bool:
        request = self.request
        if found.size >= request.min_bytes or found.has_error or request.max_wait_ms <= 0:
            return False
        return bool(found.partitions) and not self.call.services.is_draining

    def _park(self, found: _Collected) -> None:
        """Wait until enough is there."""
        loop = asyncio.get_running_loop()
        if self.deadline < 0:
            self.deadline = loop.time() + self.request.max_wait_ms / 1000
            self.future: Future = loop.create_future()
            self.undo = self.call.connection.when_lost(self._lost)
        self.parked = Parked(
            self.call.services.waiting,
            found.partitions,
            # A commit makes more readable than it adds.
            1 if self.request.isolation_level else self.request.min_bytes - found.size,
            self.deadline - loop.time(),
            self._wake,
        )

    def _lost(self) -> None:
        """Give up: the client is gone."""
        if self.parked is not None:
            self.parked.leave()
        self._end()
        if not self.future.done():
            self.future.set_result(None)

    def _end(self) -> None:
        """Let go of what refers back to this fetch.

        Else every fetch that waited would lie about until the cycle collector comes, with the
        records of its answer, and clients would notice the collector's pauses.
        """
        self.undo()
        self.undo = _nothing
        self.parked = None

    def _wake(self) -> None:
        if self.future.done():
            return
        try:
            found = self._collect()
            is_late = asyncio.get_running_loop().time() >= self.deadline
            if found.is_doubtful or found.cold:
                self._go_on(self._finish_later(found))
            elif self._is_too_little(found) and not is_late:
                self._park(found)
            else:
                self._settle(self._answer(found))
        except Exception as error:  # noqa: BLE001 (the root of a callback: the fetch must end)
            self._end()
            self.future.set_exception(error)

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        tasks = readers(self.call).tasks
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _finish_later(self, found: _Collected) -> None:
        try:
            if found.is_doubtful:
                await self.call.services.replica.barrier()
                found = self._collect()
            self._settle(await self._read(found))
        except Exception as error:  # noqa: BLE001 (a task's root: the fetch must end)
            self._end()
            if not self.future.done():
                self.future.set_exception(error)

    def _settle(self, response: FetchResponse) -> None:
        self._end()
        if not self.future.done():
            self.future.set_result(response)

    # Reading and answering.

    def _read(self, found: _Collected) -> Coroutine[Any, Any, FetchResponse]:
        """Read what lies on disk; its memory is counted now, before another fetch asks for some."""
        if found.cold:
            self.call.connection.promise(max(found.size, *map(_least, found.cold)))
        return self._read_cold(found)

    async def _read_cold(self, found: _Collected) -> FetchResponse:
        """Read several partitions side by side; one's failure is its own."""
        if len(found.cold) == 1:
            await self._fill(found.cold[0])
        elif found.cold:
            await asyncio.gather(*map(self._fill, found.cold))
        return self._answer(found)

    async def _fill(self, cold: _Wanted) -> None:
        answer, key, partition, offset, limit, is_first, until, _ = cold
        shared = readers(self.call)
        try:
            async with shared.disk:
                records = await shared.reader.read(
                    key, partition, offset, limit, whole_first=is_first, until=until
                )
        except Error as error:
            log.warning("cannot read: %s", error)
            is_corrupt = isinstance(error, Corrupt)
            answer.error_code = (
                ErrorCode.CORRUPT_MESSAGE if is_corrupt else ErrorCode.KAFKA_STORAGE_ERROR
            )
            return
        if records is None:
            # Deleted while it was read; a reader that asks again is told from where on there is.
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            answer.log_start_offset = partition.log_start
        elif records.size:
            _give(cold, records)
            self._count(key[0], records.next_offset - offset, records.size)

    def _count(self, topic_id: bytes, records: int, size: int) -> None:
        topic = self.call.state.topics.by_id.get(topic_id)
        if topic is not None:
            READ.add(topic_id, topic.name, records, size)

    def _answer(self, found: _Collected) -> FetchResponse:
        for topic_id, records, size in found.sent:
            self._count(topic_id, records, size)
        session = self.session
        responses: list[FetchableTopicResponse] = []
        served: list[Watched] = []
        last: object = None
        for watched, answer in found.answers:
            if session.id and not self._is_news(watched, answer, served):
                continue
            if not responses or watched.topic != last:
                last = watched.topic
                responses.append(_topic_response(watched))
            responses[-1].partitions.append(answer)
        if served:
            session.rotate(served)
        return FetchResponse(
            session_id=session.id,
            responses=responses,
            node_endpoints=list(found.endpoints.values()),
        )

    def _is_news(self, watched: Watched, answer: PartitionData, served: list[Watched]) -> bool:
        """Whether a partition belongs into the answer of a session."""
        if answer.error_code is not _NONE:
            # So that it is told again when it is well again.
            watched.high_watermark = -1
            return True
        has_changed = self.session.told(watched, answer.high_watermark, answer.log_start_offset)
        if answer.records:
            served.append(watched)
            return True
        return has_changed or not self.session.is_incremental


def _nothing() -> None:
    """Undo what was undone."""


def _topic_response(watched: Watched) -> FetchableTopicResponse:
    topic = watched.topic
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])


def _least(cold: _Wanted) -> int:
    """Return what must be read whatever the limit: the first batch lies within one row."""
    return cold.partition.sizes[cold.partition.row_of(cold.offset)] if cold.is_first else 0


def _give(cold: _Wanted, records: Slice) -> None:
    """Put records into an answer, and which of them were aborted, if the client wants to know."""
    answer = cold.answer
    answer.records = Parts(records.parts)
    if answer.aborted_transactions is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in aborted.within(cold.aborted, cold.offset, records.next_offset)
        ]


def _available(cold: _Wanted, limit: int) -> int:
    """Return about how many bytes there are from an offset on, no more than the limit."""
    size = 0
    partition = cold.partition
    bases, sizes = partition.base_offsets, partition.sizes
    for index in range(partition.row_of(cold.offset), len(sizes)):
        if bases[index] >= cold.until:
            break
        size += sizes[index]
        if size >= limit:
            return limit
    return size
