"""Relays one client's Produce requests where some topics have virtual partitions.

Kafka takes one batch for each partition from a request, and a client may send batches for several
virtual partitions of one physical partition. So a request is sent in *waves*: the first has the
first batch for each physical partition, the second the second, and so on. All waves leave at once,
each broker's on one connection, so that batches of a virtual partition stay in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any, Final, NamedTuple

from rookery.errors import ApiError, Corrupt, Error, ErrorCode, Unavailable
from rookery.net.callqueue import CallOptions
from rookery.proxy.nodes.backends import Backend, BackendPool, NotSentError
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.nodes.producerelay import UnconfirmedWrites
from rookery.proxy.nodes.writeorder import MOVED, BatchStart, WriteOrder, read_start
from rookery.proxy.virtual.physicallog import PhysicalLog
from rookery.proxy.virtual.producetarget import (
    find_limit,
    find_target,
    learn_results,
    limit_options,
    produce_refusal,
)
from rookery.proxy.virtual.tags import tag_batch
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.message import Message
from rookery.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_OWN_LANE: Final = -1


class ProduceLane(NamedTuple):
    """A unit of ordering: a virtual partition, or a partition of a plain topic."""

    topic: str
    partition: int
    """The physical one."""
    slot: int


class LaneBatch:
    """One batch of a request in progress."""

    __slots__ = ("count", "index", "lane", "log", "records", "result", "start")

    def __init__(self, index: int, lane: ProduceLane, records: Any) -> None:
        self.index = index
        """The partition as the client names it."""
        self.lane = lane
        self.records = records
        self.log: PhysicalLog | None = None
        """Of a virtual partition."""
        self.start: BatchStart | None = None
        self.count = 0
        self.result = produce_refusal(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def refuse(self, code: ErrorCode, reason: str = "") -> None:
        """Answer with an error."""
        self.result = produce_refusal(self.index, code, reason)


class SentWave(NamedTuple):
    """Batches that are sent in one request."""

    backend: Backend
    batches: list[LaneBatch]
    answer: asyncio.Future[Any]


class ProduceWaves:
    """The writes of one client."""

    def __init__(
        self,
        topics: VirtualTopics,
        directory: NodeDirectory,
        backends: BackendPool,
        unconfirmed: UnconfirmedWrites,
    ) -> None:
        self._topics = topics
        self._directory = directory
        self._backends = backends
        self._unconfirmed = unconfirmed
        self._order: WriteOrder[Backend] = WriteOrder()

    def start(
        self, call: NodeCall, options: CallOptions, one_way_options: CallOptions
    ) -> Awaitable[Message | None]:
        """Send a request; return its response, or nothing for acks=0."""
        request: ProduceRequest = call.request
        rows = [
            (topic.name, [self._prepare(call, topic.name, part) for part in topic.partition_data])
            for topic in request.topic_data
        ]
        ready = [batch for _, row in rows for batch in row if not batch.result.error_code]
        if call.api.is_one_way(request):
            waves = self._send(call, ready, one_way_options)
            self._unconfirmed.add(wave.backend for wave in waves)
            sent = sum(len(wave.batches) for wave in waves)
            return _wait_sent(waves, has_refusals=sent < sum(len(row) for _, row in rows))
        limit_ms = find_limit(request)
        options = limit_options(options, limit_ms)
        return self._answer(rows, self._send(call, ready, options), limit_ms)

    def _prepare(self, call: NodeCall, topic: str, part: PartitionProduceData) -> LaneBatch:
        """Find the lane of a batch, and tag it; its result is an error if it is refused."""
        entry = self._topics.book.find(topic)
        batch = LaneBatch(part.index, ProduceLane(topic, part.index, _OWN_LANE), part.records)
        if entry is None:
            batch.start = read_start(part.records)
            batch.result.error_code = ErrorCode.NONE
            return batch
        try:
            log, slot = find_target(self._topics, entry, part.index, call.version)
            tagged = tag_batch(part.records, slot)
        except ApiError as error:
            batch.refuse(error.code, str(error))
            return batch
        header = tagged.header
        batch.log, batch.lane = log, ProduceLane(topic, log.place.partition, slot)
        batch.records = tagged.records
        batch.count = header.last_offset_delta + 1
        if header.has_producer_id:
            batch.start = BatchStart(
                header.producer_id, header.producer_epoch, header.base_sequence
            )
        batch.result.error_code = ErrorCode.NONE
        return batch

    # Sending.

    def _send(
        self, call: NodeCall, batches: list[LaneBatch], options: CallOptions
    ) -> list[SentWave]:
        """Send batches in waves; those that must wait for an earlier one are refused."""
        waves: dict[tuple[int, int], tuple[Backend, list[LaneBatch]]] = {}
        numbers: dict[tuple[str, int], int] = {}
        lanes: set[ProduceLane] = set()
        for batch in batches:
            if batch.lane in lanes:
                batch.refuse(ErrorCode.INVALID_REQUEST, "the request has two batches for it")
                continue
            lanes.add(batch.lane)
            backend = self._choose(batch)
            if backend is None:
                batch.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            physical = batch.lane.topic, batch.lane.partition
            number = numbers[physical] = numbers.get(physical, -1) + 1
            waves.setdefault((number, id(backend)), (backend, []))[1].append(batch)
        return [
            self._send_wave(call, *waves[key], options)
            for key in sorted(waves, key=lambda key: key[0])
        ]

    def _choose(self, batch: LaneBatch) -> Backend | None:
        """Return the connection for a batch; None if the client must repeat an earlier one."""
        lane = batch.lane
        if not self._order.admits(lane, batch.start):
            return None
        pinned = self._order.find_pinned(lane)
        if pinned is None:
            return self._backends.get(self._directory.topology.leader(lane.topic, lane.partition))
        if pinned.is_over:
            self._order.note_refused(lane, batch.start, pinned)
            return None
        return pinned

    def _send_wave(
        self, call: NodeCall, backend: Backend, batches: list[LaneBatch], options: CallOptions
    ) -> SentWave:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            lane = batch.lane
            topic = topics.setdefault(
                lane.topic, TopicProduceData(name=lane.topic, partition_data=[])
            )
            topic.partition_data.append(
                PartitionProduceData(index=lane.partition, records=batch.records)
            )
            if options.is_answered:
                self._order.note_sent(lane, batch.start, backend)
        part = call.request.replace(topic_data=list(topics.values()))
        future = call.send(backend, part, options)
        if options.is_answered:
            # The end is recorded even if the client has disconnected.
            future.add_done_callback(lambda done: self._end(backend, batches, done))
        return SentWave(backend, batches, future)

    def _end(self, backend: Backend, batches: list[LaneBatch], done: asyncio.Future[Any]) -> None:
        """Record the outcome of a wave."""
        error = None if done.cancelled() else done.exception()
        response = None if done.cancelled() or error is not None else done.result()
        rows = {} if response is None else learn_results(self._directory.topology, response)
        if response is None and not isinstance(error, NotSentError):
            # After a timeout, the connection must not append after the batches that are sent next.
            backend.close()
        for batch in batches:
            row = rows.get((batch.lane.topic, batch.lane.partition))
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if row is None else row.error_code
            is_lost = code in MOVED
            self._order.note_ended(batch.lane, batch.start, is_lost=is_lost)
            if row is not None:
                row.index = batch.index
                row.current_leader = None
                batch.result = row
                continue
            self._directory.topology.doubt(batch.lane.topic)
            # It is unknown whether they were appended, unless they were not sent.
            is_unsent = isinstance(error, NotSentError)
            batch.refuse(
                ErrorCode.NOT_LEADER_OR_FOLLOWER if is_unsent else ErrorCode.REQUEST_TIMED_OUT
            )

    # Answering.

    async def _answer(
        self, rows: list[tuple[str, list[LaneBatch]]], waves: list[SentWave], limit_ms: int
    ) -> Message:
        throttle_ms = 0
        for done in await asyncio.gather(*(wave.answer for wave in waves), return_exceptions=True):
            if isinstance(done, ProduceResponse):
                throttle_ms = max(throttle_ms, done.throttle_time_ms)
            elif not isinstance(done, Error):
                raise done  # cancelled, or a fault of our own
        numbered = [
            batch for batch in _all(rows) if batch.log is not None and not batch.result.error_code
        ]
        await asyncio.gather(*(self._number(batch, limit_ms) for batch in numbered))
        return ProduceResponse(
            throttle_time_ms=throttle_ms,
            responses=[
                TopicProduceResponse(name=name, partition_responses=[batch.result for batch in row])
                for name, row in rows
            ],
        )

    async def _number(self, batch: LaneBatch, limit_ms: int) -> None:
        """Put the virtual offset of an acknowledged batch into its result."""
        assert batch.log is not None  # noqa: S101 (only virtual partitions are numbered)
        result = batch.result
        physical, result.base_offset = result.base_offset, -1
        result.log_start_offset = 0
        if physical < 0:
            # A duplicate whose offset the broker does not remember.
            return
        try:
            async with asyncio.timeout(limit_ms / 1000):
                result.base_offset = await batch.log.locate(physical, batch.lane.slot, batch.count)
        except Corrupt as error:
            batch.refuse(ErrorCode.POLICY_VIOLATION, str(error))
        except (Error, TimeoutError):
            # The batch is in the log; only its offset is not known in time.
            return


def _all(rows: list[tuple[str, list[LaneBatch]]]) -> Iterator[LaneBatch]:
    for _, row in rows:
        yield from row


async def _wait_sent(waves: list[SentWave], *, has_refusals: bool) -> None:
    """Wait until requests without answers are sent.

    Raises:
        Unavailable: some cannot be sent; only closing the connection can report this.
    """
    await asyncio.gather(*(wave.answer for wave in waves))
    if has_refusals:
        raise Unavailable("a batch without acknowledgement was refused")
