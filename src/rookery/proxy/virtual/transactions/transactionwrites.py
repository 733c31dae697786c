"""Relays one client's Produce requests of transactions to virtual partitions.

Each batch joins the stream of its producer and physical partition, which all clients of a process
share: it gives the batch its sequence in the log, and decides when it may be sent. The k-th
batches of all streams of a request go in one request to each broker, as those of `producewaves` do.

A client's connection to another instance can bring its batches there at the same time. The streams
find out, but the transaction must then be aborted. So batches are taken only for the physical
partitions that this instance leads, as clients see it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from rookery.errors import ApiError, Corrupt, Error, ErrorCode, Unavailable
from rookery.net.callqueue import CallOptions
from rookery.proxy.nodes.backends import Backend, BackendPool, NotSentError
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.nodes.writeorder import BatchStart
from rookery.proxy.virtual.physicallog import PhysicalLog
from rookery.proxy.virtual.producetarget import (
    find_limit,
    find_target,
    learn_results,
    limit_options,
    produce_refusal,
)
from rookery.proxy.virtual.tags import TaggedBatch, tag_batch
from rookery.proxy.virtual.transactions.transactionstream import (
    FAILED,
    BatchOutcome,
    BatchState,
    StreamBatch,
    TransactionStream,
)
from rookery.proxy.virtual.upstreamcalls import LogPlace
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.message import Message
from rookery.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_FIRST_ABORTABLE: Final = 11
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE."""


class ProduceAttempt:
    """One batch of a request."""

    __slots__ = (
        "batch",
        "index",
        "log",
        "result",
        "slot",
        "start",
        "stream",
        "tagged",
        "throttle_ms",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        """The partition as the client names it."""
        self.result: PartitionProduceResponse | None = None
        """Its answer, if it is refused."""
        self.log: PhysicalLog
        self.slot = 0
        self.tagged: TaggedBatch
        self.start: BatchStart
        self.stream: TransactionStream
        self.batch: StreamBatch | None = None
        self.throttle_ms = 0

    @property
    def count(self) -> int:
        """The number of its sequences."""
        return self.tagged.header.last_offset_delta + 1


class BatchSending(NamedTuple):
    """How a batch is sent: on the connections of the client that has sent it last."""

    writes: TransactionWrites
    call: NodeCall
    options: CallOptions
    attempt: ProduceAttempt


class TransactionWrites:
    """The writes of one client in transactions."""

    def __init__(
        self, topics: VirtualTopics, directory: NodeDirectory, backends: BackendPool
    ) -> None:
        self._topics = topics
        self._streams = topics.streams
        self._directory = directory
        self._backends = backends

    async def refuse_one_way(self) -> None:
        """Refuse a request without acknowledgement.

        Raises:
            Unavailable: always; only the end of the connection tells the client.
        """
        raise Unavailable("transactions need acknowledgements")

    def start(self, call: NodeCall, options: CallOptions) -> Any:
        """Send a request that names virtual partitions only; return its response."""
        request: ProduceRequest = call.request
        limit_ms = find_limit(request)
        options = limit_options(options, limit_ms)
        rows = [
            (topic.name, [self._prepare(call, topic.name, part) for part in topic.partition_data])
            for topic in request.topic_data
        ]
        ready = [each for _, row in rows for each in row if each.result is None]
        # Batches that come again need the order of their sequences.
        ready.sort(key=lambda each: each.stream.rank(each.slot, each.start.sequence, each.count))
        for each in ready:
            self._admit(each, BatchSending(self, call, options, each))
        self._send(each.stream for each in ready)
        return self._answer(rows, limit_ms, call.version)

    # Numbering.

    def _prepare(self, call: NodeCall, topic: str, part: PartitionProduceData) -> ProduceAttempt:
        """Find the stream of a batch, and tag it; its result is set if it is refused."""
        attempt = ProduceAttempt(part.index)
        entry = self._topics.book.find(topic)
        assert entry is not None  # noqa: S101 (only such topics come here)
        try:
            attempt.log, attempt.slot = find_target(self._topics, entry, part.index, call.version)
            place = attempt.log.place
            self._check_leader(place)
            attempt.tagged = tag_batch(part.records, attempt.slot, is_transactional=True)
            header = attempt.tagged.header
            attempt.start = BatchStart(
                header.producer_id, header.producer_epoch, header.base_sequence
            )
            key = call.request.transactional_id, header.producer_id, place
            attempt.stream = self._streams.find(key, header.producer_epoch)
        except ApiError as error:
            attempt.result = produce_refusal(part.index, error.code, str(error))
        return attempt

    def _check_leader(self, place: LogPlace) -> None:
        """Refuse a partition that clients know another instance as the leader of.

        Raises:
            ApiError: it is another's.
        """
        instances = self._directory.instances
        if instances.leader_of(place.topic, place.partition) != instances.own_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _admit(self, attempt: ProduceAttempt, sending: BatchSending) -> None:
        try:
            batch = attempt.stream.admit(attempt.slot, attempt.start.sequence, attempt.count)
        except ApiError as error:
            code = _code(error.code, sending.call.version)
            attempt.result = produce_refusal(attempt.index, code, str(error))
            return
        attempt.batch = batch
        if batch.state is BatchState.WAITING:
            batch.sending = sending

    # Sending.

    def _send(self, streams: Iterable[TransactionStream]) -> None:
        """Send what can be sent of some streams, the k-th batches of all in one request."""
        waves: dict[tuple[int, int, int], tuple[Backend, list[StreamBatch]]] = {}
        for stream in dict.fromkeys(streams):
            is_sending = stream.is_sending
            ready = stream.take_ready()
            for number, batch in enumerate(ready):
                sending: BatchSending = batch.sending
                place = sending.attempt.log.place
                backend = sending.writes.choose(stream, place, is_sending=is_sending)
                if backend is None:
                    stream.give_up(ready[number:])
                    break
                is_sending = True
                key = number, id(backend), id(sending.call)
                waves.setdefault(key, (backend, []))[1].append(batch)
        for key in sorted(waves, key=lambda key: key[0]):
            self._send_wave(*waves[key])

    def choose(
        self, stream: TransactionStream, place: LogPlace, *, is_sending: bool
    ) -> Backend | None:
        """Return the connection for a batch; None if it cannot be sent after those in flight."""
        if is_sending:
            owner, backend = stream.connection
            return backend if owner is self and not backend.is_over else None
        leader = self._directory.topology.leader(place.topic, place.partition)
        backend = self._backends.get(leader)
        stream.connection = self, backend
        return backend

    def _send_wave(self, backend: Backend, batches: list[StreamBatch]) -> None:
        topics: dict[str, TopicProduceData] = {}
        sending: BatchSending
        sent: list[tuple[StreamBatch, BatchSending]] = []
        for batch in batches:
            sending = batch.sending
            place = sending.attempt.log.place
            topic = topics.setdefault(
                place.topic, TopicProduceData(name=place.topic, partition_data=[])
            )
            records = sending.attempt.tagged.renumber(batch.sequence)
            topic.partition_data.append(
                PartitionProduceData(index=place.partition, records=records)
            )
            sent.append((batch, sending))
        call = sending.call
        part = call.request.replace(topic_data=list(topics.values()))
        future = call.send(backend, part, sending.options)
        # The end is recorded also if the client is gone.
        future.add_done_callback(partial(self._end, backend, sent))

    def _end(
        self,
        backend: Backend,
        sent: list[tuple[StreamBatch, BatchSending]],
        done: asyncio.Future[Any],
    ) -> None:
        """Record the outcome of a wave."""
        error = None if done.cancelled() else done.exception()
        rows, throttle_ms = {}, 0
        if not done.cancelled() and error is None:
            rows = learn_results(self._directory.topology, done.result())
            throttle_ms = done.result().throttle_time_ms
        elif not isinstance(error, NotSentError):
            # After a timeout, the connection must not append later than what is sent next.
            backend.close()
        for batch, sending in sent:
            attempt = sending.attempt
            attempt.throttle_ms = throttle_ms
            place = attempt.log.place
            row = rows.get((place.topic, place.partition))
            if row is not None and not row.error_code:
                self._streams.follow(self._verify(attempt, batch, row.base_offset))
                continue
            verdict = BatchOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if row is not None:
                is_gap = row.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                reason = row.error_message or ""
                verdict = BatchOutcome(row.error_code, reason=reason, is_out_of_order=is_gap)
            else:
                self._directory.topology.doubt(place.topic)
                if not isinstance(error, NotSentError):
                    verdict = BatchOutcome(ErrorCode.REQUEST_TIMED_OUT)
            attempt.stream.judge(batch, verdict)
        self._send(sending.attempt.stream for _, sending in sent)

    async def _verify(self, attempt: ProduceAttempt, batch: StreamBatch, physical: int) -> None:
        """Find an acknowledged batch in the log."""
        verdict = FAILED
        if physical >= 0:
            start = attempt.start._replace(sequence=batch.sequence)
            try:
                offset = await attempt.log.locate(physical, batch.slot, batch.count, start)
            except Corrupt as error:
                verdict = FAILED._replace(reason=str(error))
            except Error:
                verdict = BatchOutcome(ErrorCode.REQUEST_TIMED_OUT)
            else:
                verdict = BatchOutcome(ErrorCode.NONE, offset)
        attempt.stream.judge(batch, verdict)
        self._send([attempt.stream])

    # Answering.

    async def _answer(
        self, rows: list[tuple[str, list[ProduceAttempt]]], limit_ms: int, version: int
    ) -> Message:
        attempts = [each for _, row in rows for each in row]
        outcomes = [each.batch.outcome for each in attempts if each.batch is not None]
        if outcomes:
            await asyncio.wait(outcomes, timeout=limit_ms / 1000)
        for each in attempts:
            if each.batch is not None and not each.batch.outcome.done():
                each.stream.withdraw(each.batch)
        return ProduceResponse(
            throttle_time_ms=max((each.throttle_ms for each in attempts), default=0),
            responses=[
                TopicProduceResponse(
                    name=name, partition_responses=[_result(each, version) for each in row]
                )
                for name, row in rows
            ],
        )


def _result(attempt: ProduceAttempt, version: int) -> PartitionProduceResponse:
    if attempt.batch is None:
        assert attempt.result is not None  # noqa: S101 (it was refused)
        return attempt.result
    outcome = attempt.batch.outcome
    if not outcome.done():
        return produce_refusal(attempt.index, ErrorCode.REQUEST_TIMED_OUT)
    verdict = outcome.result()
    if verdict.code:
        return produce_refusal(attempt.index, _code(verdict.code, version), verdict.reason)
    return PartitionProduceResponse(
        index=attempt.index,
        error_code=ErrorCode.NONE,
        base_offset=verdict.offset,
        log_start_offset=0,
    )


def _code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code for a client that must abort its transaction; others stay.

    Older clients bump their epoch after UNKNOWN_PRODUCER_ID, as if a broker had lost its state. To
    librdkafka, OUT_OF_ORDER_SEQUENCE_NUMBER is fatal.
    """
    if code is not FAILED.code:
        return code
    if version >= _FIRST_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return ErrorCode.UNKNOWN_PRODUCER_ID
