"""Relays one client's fetches to the leaders, and answers when what has arrived suffices.

Every broker gets a part with the client's wait and its share of the client's limits. Where the sum
matters, all are first asked without a wait; then each waits for what the sum lacks. The answer
leaves when the sum reaches min_bytes, a partition has an error, or the wait is over. Parts that
arrive later are held for the client's next fetch (`fetchbuffer`).

Fetch sessions are the proxy's own. Brokers get whole fetches, without a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rookery.clock import loop_seconds
from rookery.errors import ApiError, ErrorCode
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.proxy.answerroom import HeldResults
from rookery.proxy.nodes.backends import BackendPool
from rookery.proxy.nodes.directory import NodeDirectory, NodeSession
from rookery.proxy.nodes.fetchbuffer import (
    HOLD_MS,
    FetchBuffer,
    FetchPosition,
    NodePartition,
    PartitionKey,
    choose_results,
    results_of,
    topics_of,
)
from rookery.proxy.nodes.lookup import Ask, MissingPlaces, doubtful_topics, look_up
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.nodes.topology import TopicKey
from rookery.proxy.nodes.writeorder import MOVED
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_FIRST_WITH_IDS: Final = 13
# Brokers answer at the end of the wait; their answers need some time to arrive.
_GRACE_SECONDS: Final = 0.1
# How much longer a fetch waits for partitions whose ends are not known.
_FIRST_GRACE_SECONDS: Final = 2.0
# A broker that takes longer than the wait plus this time has failed.
_PATIENCE_MS: Final = 30_000


class FetchShare(NamedTuple):
    """The share of a fetch for one of several brokers."""

    parts: int
    """How many brokers share the limit of bytes."""
    min_bytes: int
    wait_ms: int

    @property
    def is_probe(self) -> bool:
        """Whether the broker answers at once, with the records that it has."""
        return self.min_bytes == self.wait_ms == 0


class NodeFetch:
    """One fetch of a client, in progress."""

    def __init__(self, call: NodeCall, session: NodeSession) -> None:
        self.call = call
        self.request: FetchRequest = call.request
        self.session = session
        self.uses_ids = call.version >= _FIRST_WITH_IDS
        self.wanted: dict[PartitionKey, NodePartition] = {
            (part.topic, part.index): part for part in session.active
        }
        level = self.request.isolation_level
        self.positions: dict[PartitionKey, FetchPosition] = {
            key: part.position(level) for key, part in self.wanted.items()
        }
        self.deadline: float = loop_seconds() + max(self.request.max_wait_ms, 0) / 1000
        self.asked: set[PartitionKey] = set()
        """The partitions that this fetch has asked for; it asks once for each."""
        self.probed: set[PartitionKey] = set()
        """The partitions whose ends it has asked for, without a wait."""
        self.arrival = asyncio.Event()
        self.is_full = not session.is_incremental or not session.id
        """Whether the answer must name every partition."""

    @property
    def remaining_ms(self) -> int:
        """How long brokers may wait for records."""
        return max(0, int((self.deadline - loop_seconds()) * 1000))


class FetchRelay:
    """The fetches of one client, one after the other."""

    def __init__(
        self,
        directory: NodeDirectory,
        backends: BackendPool,
        connection: Connection,
        ask: Ask,
    ) -> None:
        """Create it for one client.

        Args:
            directory: the upstream.
            backends: the client's connections.
            connection: the connection of the client.
            ask: asks any broker, for lookups.
        """
        self._directory = directory
        self._backends = backends
        self._room = connection.answers.room
        self._ask = ask
        self._buffer = FetchBuffer()
        self._held = HeldResults(connection, self._buffer.drop, HOLD_MS)
        self._turn = asyncio.Lock()
        self._current: NodeFetch | None = None
        self._throttle_ms = 0

    async def fetch(self, call: NodeCall, options: CallOptions) -> FetchResponse:
        """Answer one fetch, after those before it."""
        async with self._turn:
            try:
                session = self._directory.sessions.resume(call.request, call.version)
            except ApiError as error:
                # As Kafka does, return neither the session nor its partitions here.
                return FetchResponse(error_code=error.code, responses=[])
            fetch = NodeFetch(call, session)
            self._current = fetch
            try:
                await self._collect(fetch, options)
                return self._answer(fetch)
            finally:
                self._current = None
                self._buffer.end()
                self._held.update(self._buffer.held_bytes)

    async def _collect(self, fetch: NodeFetch, options: CallOptions) -> None:
        """Ask the leaders, and wait until what has arrived suffices."""
        self._buffer.begin(fetch.positions, self._directory.clock.monotonic_ms())
        self._held.update(self._buffer.held_bytes)
        partitions: dict[TopicKey, list[int]] = {}
        for topic, index in fetch.wanted:
            partitions.setdefault(topic, []).append(index)
        topics = doubtful_topics(self._directory, partitions)
        if topics:
            await look_up(
                self._directory, MissingPlaces(has_brokers=True, topics=topics), self._ask
            )
        self._ask_leaders(fetch, options)
        while not self._is_enough(fetch):
            fetch.arrival.clear()
            limit = self._limit(fetch)
            try:
                async with asyncio.timeout_at(limit):
                    await fetch.arrival.wait()
            except TimeoutError:
                return
            self._ask_leaders(fetch, options)

    def _leaders(self, fetch: NodeFetch) -> dict[int, list[PartitionKey]]:
        leaders: dict[int, list[PartitionKey]] = {}
        for key in fetch.wanted:
            leaders.setdefault(self._directory.topology.leader(*key), []).append(key)
        return leaders

    def _ask_leaders(self, fetch: NodeFetch, options: CallOptions) -> None:
        """Ask each leader that has no part to answer, first without a wait if that is needed."""
        leaders = self._leaders(fetch)
        if len(leaders) == 1:
            [(broker_id, keys)] = leaders.items()
            self._ask_leader(fetch, broker_id, keys, fetch.request.min_bytes, options)
            return
        for broker_id, keys in leaders.items():
            unknown = self._to_probe(fetch, keys)
            if unknown and not self._buffer.is_asked(broker_id):
                fetch.probed.update(unknown)
                self._send(fetch, broker_id, unknown, FetchShare(len(leaders), 0, 0), options)
        total = sum(self._sizes(fetch.wanted))
        least = fetch.request.min_bytes
        if total >= least > 0 or (least > 1 and not fetch.wanted.keys() <= fetch.probed):
            return
        for broker_id, keys in leaders.items():
            # It answers when its own new records complete the sum.
            own = sum(self._sizes(keys))
            self._ask_leader(fetch, broker_id, keys, least - total + own, options, len(leaders))

    def _ask_leader(
        self,
        fetch: NodeFetch,
        broker_id: int,
        keys: list[PartitionKey],
        min_bytes: int,
        options: CallOptions,
        parts: int = 1,
    ) -> None:
        """Ask a leader for the partitions that this fetch has not asked for yet."""
        if self._buffer.is_asked(broker_id):
            return
        has_all = fetch.request.min_bytes <= 1
        missing = set(self._buffer.find_missing(keys)) if has_all else set(keys)
        asked = [key for key in keys if key in missing and key not in fetch.asked]
        if asked:
            fetch.asked.update(asked)
            share = FetchShare(parts, min_bytes, fetch.remaining_ms)
            self._send(fetch, broker_id, asked, share, options)

    def _to_probe(self, fetch: NodeFetch, keys: list[PartitionKey]) -> list[PartitionKey]:
        """Return the partitions that are asked for without a wait.

        Where min_bytes is more than one, these are all: the sum must be known. Otherwise they are
        those whose ends the answer needs, and that are not known.
        """
        if fetch.request.min_bytes > 1:
            return [key for key in keys if key not in fetch.probed]
        if not fetch.is_full:
            return []
        return [key for key in keys if key not in fetch.probed and not self._buffer.is_known(key)]

    def _sizes(self, keys: Iterable[PartitionKey]) -> Iterator[int]:
        for key in keys:
            held = self._buffer.find_held(key)
            if held is not None:
                yield held.size

    def _send(
        self,
        fetch: NodeFetch,
        broker_id: int,
        keys: list[PartitionKey],
        share: FetchShare,
        options: CallOptions,
    ) -> None:
        request = fetch.request
        part = FetchRequest(
            max_wait_ms=share.wait_ms,
            min_bytes=share.min_bytes,
            max_bytes=max(1, min(request.max_bytes, self._room()) // share.parts),
            isolation_level=request.isolation_level,
            topics=topics_of((key, fetch.wanted[key].ask()) for key in keys),
        )
        self._buffer.ask(broker_id, {key: fetch.positions[key] for key in keys})
        patience_ms = share.wait_ms + _PATIENCE_MS
        if options.timeout_ms is not None:
            patience_ms = min(patience_ms, options.timeout_ms)
        backend = self._backends.get(broker_id)
        future = fetch.call.send(backend, part, replace(options, timeout_ms=patience_ms))
        uses_ids = fetch.uses_ids

        def arrive(done: asyncio.Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                # Its answer was invalid or too late; later bytes belong to no request.
                backend.close()
                results = [_refusal(key, ErrorCode.NOT_LEADER_OR_FOLLOWER) for key in keys]
            else:
                results = self._read(done.result(), keys, uses_ids=uses_ids)
            self._arrive(broker_id, results, is_probe=share.is_probe)

        future.add_done_callback(arrive)

    def _read(
        self, response: FetchResponse, keys: list[PartitionKey], *, uses_ids: bool
    ) -> list[tuple[PartitionKey, PartitionData]]:
        """Return the results in a broker's answer."""
        self._throttle_ms = max(self._throttle_ms, response.throttle_time_ms)
        self._directory.learn_fetched(response)
        if response.error_code:
            return [_refusal(key, response.error_code) for key in keys]
        return list(results_of(response, uses_ids=uses_ids))

    def _arrive(
        self,
        broker_id: int,
        results: list[tuple[PartitionKey, PartitionData]],
        *,
        is_probe: bool,
    ) -> None:
        """Hold the results of a part, and wake the fetch that waits."""
        for (topic, _), data in results:
            if data.error_code in MOVED and not data.current_leader:
                self._directory.topology.doubt(topic)
        now_ms = self._directory.clock.monotonic_ms()
        self._buffer.arrive(broker_id, results, now_ms, is_probe=is_probe)
        if self._current is None:
            self._held.update(self._buffer.held_bytes)
        else:
            self._current.arrival.set()

    def _is_enough(self, fetch: NodeFetch) -> bool:
        if not any(self._buffer.is_asked(broker_id) for broker_id in self._leaders(fetch)):
            return True
        if fetch.is_full and not all(self._buffer.is_known(key) for key in fetch.wanted):
            return False
        held = [self._buffer.find_held(key) for key in fetch.wanted]
        if any(each is not None and each.is_urgent for each in held):
            return True
        total = sum(each.size for each in held if each is not None)
        return 0 < total >= fetch.request.min_bytes

    def _limit(self, fetch: NodeFetch) -> float | None:
        """Return the time at which the fetch is answered with the results that have arrived."""
        if len(self._leaders(fetch)) == 1:
            # There is no other result to answer with.
            return None
        is_known = all(self._buffer.is_known(key) for key in fetch.wanted)
        grace = _GRACE_SECONDS if is_known or not fetch.is_full else _FIRST_GRACE_SECONDS
        return fetch.deadline + grace

    def _answer(self, fetch: NodeFetch) -> FetchResponse:
        session, buffer = fetch.session, self._buffer
        held = {
            key: result for key in fetch.wanted if (result := buffer.find_held(key)) is not None
        }
        chosen = choose_results(
            ((key, result.size) for key, result in held.items()), fetch.request.max_bytes
        )
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        served: list[NodePartition] = []
        for key, part in fetch.wanted.items():
            if key in chosen:
                data = buffer.take(key)
            elif not session.id or not session.is_incremental:
                data = self._nothing_new(key)
            else:
                continue
            if data.records:
                served.append(part)
            if not session.id or _is_news(session, part, data):
                _topic_of(topics, key[0]).partitions.append(data)
        session.rotate(served)
        throttle_ms, self._throttle_ms = self._throttle_ms, 0
        return FetchResponse(
            throttle_time_ms=throttle_ms, session_id=session.id, responses=list(topics.values())
        )

    def _nothing_new(self, key: PartitionKey) -> PartitionData:
        """Return the result of a partition whose broker has not answered in time."""
        if self._buffer.is_known(key):
            return self._buffer.nothing_new(key[1], key)
        return _refusal(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)[1]


def _refusal(key: PartitionKey, code: ErrorCode) -> tuple[PartitionKey, PartitionData]:
    return key, PartitionData(
        partition_index=key[1],
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _topic_of(
    topics: dict[TopicKey, FetchableTopicResponse], key: TopicKey
) -> FetchableTopicResponse:
    topic = topics.get(key)
    if topic is None:
        topic = topics[key] = (
            FetchableTopicResponse(topic_id=key, partitions=[])
            if isinstance(key, bytes)
            else FetchableTopicResponse(topic=key, topic_id=ZERO_UUID, partitions=[])
        )
    return topic


def _is_news(session: NodeSession, part: NodePartition, data: PartitionData) -> bool:
    if data.error_code:
        # Report the partition again after it has recovered.
        part.high_watermark = -1
        return True
    has_changed = session.note(part, data.high_watermark, data.log_start_offset)
    has_diverged = data.diverging_epoch is not None
    return bool(data.records) or has_changed or has_diverged or not session.is_incremental
