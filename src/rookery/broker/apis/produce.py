"""Produce: validates batches, has them written and committed, and returns their offsets.

Acks of 1 and of all mean the same here: durable and committed. With acks 0 there is no response,
and an error closes the connection, as in Kafka: the client has no other way to notice it.

    all known, nothing to recompress ──────────────► writer ──► offsets ──► answer
    else: barrier, or a look at the records in a thread ──► the same, in the client's order
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from rookery.broker import checks
from rookery.broker.call import Call, handles
from rookery.broker.checks import Rules
from rookery.broker.config.configs import TopicConfigs
from rookery.broker.leaders import other_leader
from rookery.cluster.state.state import AppendOutcome
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, Error, ErrorCode, code_of
from rookery.log.write.flushtarget import CheckedBatch
from rookery.model.topicname import RESERVED_TOPICS
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.wire.messages.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

log = logging.getLogger(__name__)

_ACKS: Final = frozenset((-1, 0, 1))
# Below this size, inspecting the records takes less time than handing them to a thread.
_THREAD_FROM_BYTES: Final = 16 * 1024
_NONE: Final = ErrorCode.NONE
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_WRONG_STATE: Final = ErrorCode.INVALID_TXN_STATE
# KIP-890: from these versions on, clients handle TRANSACTION_ABORTABLE, and a write adds its
# partition to the transaction.
_ABORTABLE_SINCE: Final = 11
_JOINS_SINCE: Final = 12
Future = asyncio.Future[ProduceResponse | None]

_Placed = tuple[PartitionProduceResponse, Topic, int]
"""A partition's response, its topic, and the index of its batch in the request."""


class _Look(NamedTuple):
    """A batch whose records must be inspected before the append."""

    configs: TopicConfigs
    position: int
    answer: PartitionProduceResponse


class _Intake:
    """One produce request in progress."""

    __slots__ = (
        "batches", "call", "endpoints", "is_doubtful", "joins", "looks", "now_ms", "placed",
        "request", "responses",
    )  # fmt: skip

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self.call = call
        self.request = request
        self.now_ms: int = call.services.clock.now_ms()
        self.joins = call.header.api_version >= _JOINS_SINCE
        self.take()

    def take(self) -> None:
        """Run all checks that need only the state and the batch headers."""
        self.batches: list[CheckedBatch] = []
        self.placed: list[_Placed] = []
        self.looks: list[_Look] = []
        self.endpoints: dict[int, NodeEndpoint] = {}
        self.is_doubtful = False
        self.responses: list[TopicProduceResponse] = []
        state = self.call.services.replica.state
        for data in self.request.topic_data:
            if self.call.header.api_version >= 13:
                topic, code = state.topics.by_id.get(data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic, code = state.topics.by_name.get(data.name), _UNKNOWN
            parts = data.partition_data
            if topic is None:
                self.is_doubtful = True
                answers = [_refuse_partition(part.index, code) for part in parts]
            elif self.call.services.is_draining:
                answers = [self._elsewhere(topic, part) for part in parts]
            elif topic.name in RESERVED_TOPICS:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
                answers = [_refuse_partition(part.index, code) for part in parts]
            else:
                rules = self.call.services.rules.of(state, topic)
                answers = [self._partition(topic, rules, part) for part in parts]
            self.responses.append(
                TopicProduceResponse(
                    name=data.name, topic_id=data.topic_id, partition_responses=answers
                )
            )

    def _partition(
        self, topic: Topic, rules: Rules, part: PartitionProduceData
    ) -> PartitionProduceResponse:
        """Check a partition's batch; the response is completed when the batch is committed."""
        index, data = part.index, part.records
        if not 0 <= index < len(topic.partitions):
            self.is_doubtful = True
            return _refuse_partition(index, _UNKNOWN)
        if not isinstance(data, memoryview):
            return _refuse_partition(index, ErrorCode.INVALID_RECORD, "there are no records")
        latest_ms = self.now_ms + rules.after_max_ms
        try:
            header = _only(batches.validate(data))
            if not rules.admits(header, latest_ms):
                rules.check(header, self.call.header.api_version, latest_ms)
                if header.is_transactional:
                    self._check_producer(header.producer_id)
        except ApiError as error:
            return _refuse_partition(index, error.code, error.text)
        position = len(self.batches)
        self.batches.append(CheckedBatch(topic.id, index, data, header, self.joins))
        answer = PartitionProduceResponse(index=index, error_code=_NONE, base_offset=-1)
        self.placed.append((answer, topic, position))
        if rules.wants_look(header):
            self.looks.append(_Look(rules.configs, position, answer))
        return answer

    def _check_producer(self, producer_id: int) -> None:
        """Refuse transactional batches of a producer that does not belong to the request's id.

        Authorization is checked for the transactional id in the request. A producer of another id
        would bypass that check.
        """
        transactional_id = self.request.transactional_id
        if transactional_id is None:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional batches in a request without a transactional id",
            )
        transaction = self.call.state.transactions.by_producer.get(producer_id)
        if transaction is None or transaction.id != transactional_id:
            self.is_doubtful = True
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"producer id {producer_id} is not that of transactional id {transactional_id!r}",
            )

    def _elsewhere(self, topic: Topic, part: PartitionProduceData) -> PartitionProduceResponse:
        """Redirect the client to another leader, since this broker is stopping."""
        if not 0 <= part.index < len(topic.partitions):
            return _refuse_partition(part.index, _UNKNOWN)
        answer = _refuse_partition(
            part.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is stopping"
        )
        leader = other_leader(self.call, topic, part.index)
        if leader is not None:
            broker = leader.broker
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=broker.node_id, leader_epoch=leader.leader_epoch
            )
            self.endpoints[broker.node_id] = NodeEndpoint(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
        return answer

    async def look(self) -> None:
        """Inspect the records where the topic's settings require it, in a thread if large."""
        refused: set[int] = set()
        for rules, position, answer in self.looks:
            try:
                self.batches[position] = await self._adapt(self.batches[position], rules)
            except ApiError as error:
                _refuse(answer, error)
                refused.add(position)
        if refused:
            self._leave_out(refused)

    async def _adapt(self, batch: CheckedBatch, rules: TopicConfigs) -> CheckedBatch:
        data = batch.data
        if len(data) < _THREAD_FROM_BYTES and not batch.header.attributes & batches.CODEC_MASK:
            adapted = checks.adapt(data, rules, self.now_ms)
        else:
            async with self.call.services.opening:
                adapted = await asyncio.to_thread(checks.adapt, data, rules, self.now_ms)
        if adapted is data:
            return batch
        return batch._replace(data=adapted, header=batches.parse(adapted))

    def _leave_out(self, refused: set[int]) -> None:
        # Each batch belongs to one partition, in the same order.
        kept = [placed for placed in self.placed if placed[2] not in refused]
        self.batches = [self.batches[position] for _, _, position in kept]
        self.placed = [(answer, topic, new) for new, (answer, topic, _) in enumerate(kept)]

    def send(self) -> Future | ProduceResponse | None:
        """Pass the batches to the writer; the response completes when they are committed."""
        if not self.batches:
            return self._finish()
        written = self.call.services.writer.append(self.batches)
        answer: Future = written.get_loop().create_future()

        def settle(done: asyncio.Future[list[AppendOutcome]]) -> None:
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            if error is None:
                self._fill(done.result())
            else:
                self._fail(error)
            if not answer.done():
                answer.set_result(self._finish())

        written.add_done_callback(settle)
        return answer

    def _fill(self, outcomes: list[AppendOutcome]) -> None:
        for answer, topic, position in self.placed:
            outcome = outcomes[position]
            answer.log_start_offset = topic.partitions[answer.index].log_start
            if outcome.error is not _NONE:
                code = outcome.error
                if code is _WRONG_STATE and self.call.header.api_version >= _ABORTABLE_SINCE:
                    code = ErrorCode.TRANSACTION_ABORTABLE
                answer.error_code = code
                answer.error_message = code.sentence
                continue
            answer.base_offset = outcome.base_offset
            answer.log_append_time_ms = outcome.append_time_ms

    def _fail(self, error: BaseException) -> None:
        code = code_of(error)
        for answer, *_ in self.placed:
            answer.error_code = code
            answer.error_message = str(error)

    def _finish(self) -> ProduceResponse | None:
        if self.request.acks:
            return ProduceResponse(
                responses=self.responses, node_endpoints=list(self.endpoints.values())
            )
        codes = {part.error_code for topic in self.responses for part in topic.partition_responses}
        if codes - {_NONE}:
            log.info(
                "a produce with acks=0 failed (%s): its connection is closed",
                ", ".join(sorted(code.name for code in codes - {_NONE})),
            )
            asyncio.get_running_loop().call_soon(self.call.connection.close)
        return None


@handles(
    PRODUCE,
    versions=range(3, 14),
    mutates=True,
    # Read-only brokers refuse it but must advertise it: librdkafka takes a broker without it for a
    # very old one.
    is_served_read_only=True,
)
def produce(call: Call, request: ProduceRequest) -> Future | ProduceResponse | None:
    """Append batches to partitions; each partition has its own result."""
    if request.acks not in _ACKS:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}")
    handover = call.services.handover
    if handover is not None and not handover.is_set():
        return asyncio.get_running_loop().create_task(_produce_after(handover, call, request))
    before = call.connection.session.pending_write
    intake = _Intake(call, request)
    if before is None and not intake.is_doubtful and not intake.looks:
        return intake.send()
    return _send_late(intake, before)


async def _produce_after(
    handover: asyncio.Event, call: Call, request: ProduceRequest
) -> ProduceResponse | None:
    """Answer after the handover, when the new leaders of the partitions are known."""
    await handover.wait()
    answer = produce(call, request)
    if answer is None or isinstance(answer, ProduceResponse):
        return answer
    return await answer


def _send_late(intake: _Intake, before: asyncio.Future[None] | None) -> Future:
    """Run the slow checks first; later requests of the same client wait for them."""
    loop = asyncio.get_running_loop()
    connection = intake.call.connection
    session = connection.session
    ready = session.pending_write = loop.create_future()

    async def prepare() -> ProduceResponse | None:
        try:
            if intake.is_doubtful:
                await intake.call.services.replica.barrier()
                intake.take()
            await intake.look()
            if before is not None:
                await asyncio.wait([before])
            sent = intake.send()
        except Error as error:
            if intake.request.acks:
                raise
            log.info("a produce with acks=0 failed: %s", error)
            connection.close()
            return None
        finally:
            ready.set_result(None)
            if session.pending_write is ready:
                session.pending_write = None
        return await sent if isinstance(sent, asyncio.Future) else sent

    return loop.create_task(prepare())


def _only(headers: list[BatchHeader]) -> BatchHeader:
    if len(headers) != 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{len(headers)} record batches for one partition; a request has one for each",
        )
    return headers[0]


def _refuse_partition(
    index: int, code: ErrorCode, text: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, error_message=text or code.sentence
    )


def _refuse(answer: PartitionProduceResponse, error: ApiError) -> None:
    answer.error_code, answer.error_message = error.code, error.text
    if isinstance(error, checks.BadRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.faults
        ]
