"""Relays one client's Produce requests to the leaders, each partition in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rookery.errors import Error, ErrorCode, Unavailable
from rookery.model.address import Address
from rookery.net.callqueue import CallOptions
from rookery.proxy.nodes.backends import Backend, BackendPool, NotSentError
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.division import divide
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.nodes.topology import PartitionLeadership, TopicKey, topic_key
from rookery.proxy.nodes.writeorder import MOVED, BatchStart, WriteOrder, read_start
from rookery.wire.message import Message, PartitionId, TopicId, TopicName
from rookery.wire.messages.produce import ProduceRequest, ProduceResponse

PartitionKey = tuple[TopicKey, int]
_MARGIN_MS: Final = 5_000


class SentBatch(NamedTuple):
    """A batch of a part."""

    key: PartitionKey
    start: BatchStart | None


class UnconfirmedWrites:
    """Connections on which writes without acknowledgement were sent."""

    def __init__(self) -> None:
        self._backends: set[Backend] = set()

    def add(self, backends: Iterable[Backend]) -> None:
        """Record that such writes were sent."""
        self._backends.update(backends)

    async def confirm(self, call: NodeCall, options: CallOptions) -> None:
        """Wait until brokers have read all writes without acknowledgement: they answer in order.

        Args:
            call: a request that every broker answers at once.
            options: of the request.

        Raises:
            Unavailable: such writes may be lost; only the end of the connection tells the client.
        """
        backends, self._backends = self._backends, set()
        await asyncio.gather(*(call.send(backend, call.request, options) for backend in backends))


class ProduceRelay:
    """The writes of one client."""

    def __init__(
        self, directory: NodeDirectory, backends: BackendPool, unconfirmed: UnconfirmedWrites
    ) -> None:
        self._directory = directory
        self._backends = backends
        self._order: WriteOrder[Backend] = WriteOrder()
        self._unconfirmed = unconfirmed

    def start(
        self, call: NodeCall, options: CallOptions, one_way_options: CallOptions
    ) -> Awaitable[Message | None]:
        """Send a request; return its response, or nothing for acks=0."""
        request: ProduceRequest = call.request
        is_one_way = call.api.is_one_way(request)
        starts = {key: read_start(part.records) for key, part in _batches(request)}
        targets = {key: self._choose(key, start) for key, start in starts.items()}
        division = divide(
            call.api, call.version, request,
            lambda name, topic_id, index: targets[topic_key(name, topic_id), index],
            TopicName, TopicId, PartitionId,
            default=None,
        )  # fmt: skip
        if is_one_way:
            sent = [
                call.send(backend, part, one_way_options)
                for backend, part in division.parts
                if backend is not None
            ]
            self._unconfirmed.add(each for each, _ in division.parts if each is not None)
            refused = (part for backend, part in division.parts if backend is None)
            # A request without a batch has nothing to refuse.
            return _wait_sent(sent, has_refusals=any(map(_batches, refused)))
        # Brokers answer within the time that the request names, even if replicas are slow.
        limit_ms = max(request.timeout_ms, 0) + _MARGIN_MS
        if options.timeout_ms is None or limit_ms < options.timeout_ms:
            options = replace(options, timeout_ms=limit_ms)
        answers = [
            self._send(call, backend, part, options, starts) for backend, part in division.parts
        ]
        return self._join(division, answers)

    def _choose(self, key: PartitionKey, start: BatchStart | None) -> Backend | None:
        """Return the connection for a batch; None if the client must repeat an earlier one."""
        if not self._order.admits(key, start):
            return None
        pinned = self._order.find_pinned(key)
        if pinned is None:
            return self._backends.get(self._directory.topology.leader(*key))
        if pinned.is_over:
            self._order.note_refused(key, start, pinned)
            return None
        return pinned

    def _send(
        self,
        call: NodeCall,
        backend: Backend | None,
        part: ProduceRequest,
        options: CallOptions,
        starts: dict[PartitionKey, BatchStart | None],
    ) -> Awaitable[Message]:
        if backend is None:
            return _given(call.refuse(part, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        batches = [SentBatch(key, starts[key]) for key, _ in _batches(part)]
        for batch in batches:
            self._order.note_sent(batch.key, batch.start, backend)
        future = call.send(backend, part, options)
        # The end is recorded even if the client has disconnected.
        future.add_done_callback(lambda done: self._end(batches, done))
        return _answer(call, backend, part, future)

    def _end(self, batches: list[SentBatch], done: asyncio.Future[Any]) -> None:
        """Record the outcome of the batches of a part."""
        response = None if done.cancelled() or done.exception() else done.result()
        codes = {} if response is None else self._learn(response)
        for batch in batches:
            code = codes.get(batch.key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            is_lost = code in MOVED
            self._order.note_ended(batch.key, batch.start, is_lost=is_lost)
            if is_lost and batch.key not in codes:
                self._directory.topology.doubt(batch.key[0])

    def _learn(self, response: ProduceResponse) -> dict[PartitionKey, ErrorCode]:
        """Return the code of each partition; learn the new leaders that the broker names."""
        topology = self._directory.topology
        places = {each.node_id: Address(each.host, each.port) for each in response.node_endpoints}
        codes: dict[PartitionKey, ErrorCode] = {}
        for topic in response.responses:
            key = topic_key(topic.name, topic.topic_id)
            for row in topic.partition_responses:
                codes[key, row.index] = row.error_code
                if row.error_code not in MOVED:
                    continue
                hint = row.current_leader
                if hint is None or hint.leader_id not in places:
                    topology.doubt(key)
                    continue
                leadership = PartitionLeadership(hint.leader_id, hint.leader_epoch)
                topology.learn_leader(key, row.index, leadership, places[hint.leader_id])
        return codes

    async def _join(self, division: Any, answers: list[Awaitable[Message]]) -> Message:
        responses = [await answer for answer in answers]
        joined: Message = division.join(responses)
        return joined


def _batches(request: ProduceRequest) -> list[tuple[PartitionKey, Any]]:
    return [
        ((topic_key(topic.name, topic.topic_id), part.index), part)
        for topic in request.topic_data
        for part in topic.partition_data
    ]


async def _given(response: Message) -> Message:
    return response


async def _answer(
    call: NodeCall, backend: Backend, part: Message, future: asyncio.Future[Any]
) -> Message:
    """Wait for a broker's answer to a part; a failure affects only that part."""
    try:
        response: Message = await future
    except NotSentError:
        return call.refuse(part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except Unavailable:
        # It is unknown whether the batches were appended; only their sequences can show it.
        # After a timeout, the connection must not append them after the batches that are sent next.
        backend.close()
        return call.refuse(part, ErrorCode.REQUEST_TIMED_OUT)
    except Error:
        backend.close()
        return call.refuse(part, ErrorCode.REQUEST_TIMED_OUT)
    return response


async def _wait_sent(sent: list[asyncio.Future[Any]], *, has_refusals: bool) -> None:
    """Wait until requests without answers are sent.

    Raises:
        Unavailable: some cannot be sent; only closing the connection can report this.
    """
    await asyncio.gather(*sent)
    if has_refusals:
        raise Unavailable("a batch without acknowledgement has no leader at the moment")
