"""Sends batches to one broker, with a limited number of requests in flight."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rookery.client.connect.connections import Lane, Link
from rookery.client.connect.retry import may_retry
from rookery.client.connect.router import Router
from rookery.client.produce.outcomes import Outcomes
from rookery.client.produce.producerbatch import PartitionQueue, ProducerBatch
from rookery.client.settings import ACKS_NONE, ProducerSettings
from rookery.clock import Clock
from rookery.errors import ApiError, Error, ErrorCode, Unavailable
from rookery.model.node import Node
from rookery.model.partition import TopicPartition
from rookery.model.uuid import ZERO
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

log = logging.getLogger(__name__)

_OLDEST: Final = 3  # the first version with batches of magic 2
_ZSTD_FROM: Final = 7
_LAST_BY_NAME: Final = 12
_MIN_REQUEST_MS: Final = 1_000


class BrokerLane:
    """Sends the batches of all partitions that one broker leads."""

    def __init__(
        self,
        node_id: int,
        router: Router,
        settings: ProducerSettings,
        clock: Clock,
        outcomes: Outcomes,
    ) -> None:
        self._node_id = node_id
        self._router = router
        self._settings = settings
        self._clock = clock
        self._outcomes = outcomes
        self._ready: dict[TopicPartition, PartitionQueue] = {}
        self._wake = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()
        self._link: Link | None = None
        self._task = asyncio.create_task(self._run(), name=f"rookery-producer-{node_id}")
        self._task.add_done_callback(_log_failure)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """All running tasks of this lane."""
        return [self._task, *self._requests]

    def offer(self, queue: PartitionQueue) -> None:
        """Register a queue that has a batch for this broker."""
        self._ready[queue.place] = queue
        self._wake.set()

    async def confirm(self) -> None:
        """Wait until the broker has read everything sent; it answers in order."""
        link = self._link
        if link is not None and not link.is_closed:
            version = link.versions.choose(API_VERSIONS)
            timeout_ms = self._router.settings.request_timeout_ms
            request = ApiVersionsRequest(
                client_software_name="rookery", client_software_version="0"
            )
            try:
                await link.call(API_VERSIONS, version, request, timeout_ms)
            except Unavailable as error:
                raise Unavailable(
                    f"records sent to broker {link.name} without acks may be lost: {error}"
                ) from error

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._ready or len(self._requests) >= self._settings.max_in_flight:
                continue
            try:
                link = await self._get_link()
            except Error as error:
                self._on_no_link(error)
                continue
            if link is not None:
                self._send_ready(link)

    async def _get_link(self) -> Link | None:
        """Return the link to use; None if the old one must drain before a new one is opened."""
        if self._link is not None and self._link.is_usable:
            return self._link
        # Two connections at the same time could reorder two batches of a partition.
        if self._requests:
            return None
        address = self._router.metadata.node(self._node_id).address
        self._link = await self._router.connections.get(address, Lane.PRODUCE)
        return self._link

    def _on_no_link(self, error: Error) -> None:
        queues = list(self._ready.values())
        self._ready.clear()
        log.info("broker %d cannot be sent to: %s", self._node_id, error)
        for queue in queues:
            self._router.metadata.forget(queue.place.topic)
            if may_retry(error):
                self._outcomes.pause(queue)
            else:
                self._outcomes.give_up(queue, queue.drop_all(), error)
        self._outcomes.news.set()

    def _send_ready(self, link: Link) -> None:
        """Send requests with the ready batches, up to the in-flight limit."""
        while self._ready and len(self._requests) < self._settings.max_in_flight:
            batches = self._collect()
            if not batches:
                return
            task = asyncio.create_task(self._send(link, batches))
            self._requests.add(task)
            task.add_done_callback(self._on_request_done)

    def _collect(self) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Take one batch from each ready queue, up to the maximum request size."""
        room, now = self._settings.max_request_bytes, self._clock.monotonic_ms()
        taken: list[tuple[PartitionQueue, ProducerBatch]] = []
        for place, queue in list(self._ready.items()):
            if taken and queue.waiting and queue.waiting[0].size > room:
                break
            del self._ready[place]
            batch = queue.take(self._node_id)
            if batch is None:
                self._outcomes.news.set()
            else:
                taken.append((queue, batch))
                room -= len(batch.data or b"")
                if queue.is_ready(now):  # its next batch goes into the next request
                    self._ready[place] = queue
        return taken

    def _on_request_done(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        _log_failure(task)
        self._wake.set()
        self._outcomes.news.set()

    async def _send(self, link: Link, batches: list[tuple[PartitionQueue, ProducerBatch]]) -> None:
        settings = self._settings
        try:
            version, request, topics = self._request(link, batches)
            timeout_ms = request.timeout_ms + _MIN_REQUEST_MS
            if settings.acks == ACKS_NONE:
                await link.post(PRODUCE, version, request, timeout_ms)
                response = None
            else:
                response = await link.call(PRODUCE, version, request, timeout_ms)
        except Error as error:
            self._on_no_answer(batches, error)
            return
        if response is None:
            for queue, batch in batches:
                self._outcomes.store(queue, batch, -1, -1)
            return
        self._on_answer(link, batches, response, topics)

    def _request(
        self, link: Link, batches: list[tuple[PartitionQueue, ProducerBatch]]
    ) -> tuple[int, ProduceRequest, dict[bytes, str]]:
        settings = self._settings
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for queue, batch in batches:
            by_topic.setdefault(queue.place.topic, []).append(
                PartitionProduceData(index=queue.place.partition, records=batch.data)
            )
        view = self._router.metadata.view
        ids = {name: view.topics[name].id if name in view.topics else ZERO for name in by_topic}
        lowest = _ZSTD_FROM if settings.compression == "zstd" else _OLDEST
        highest = _LAST_BY_NAME if ZERO in ids.values() else None
        version = link.versions.choose(PRODUCE, lowest=lowest, highest=highest)
        request = ProduceRequest(
            acks=settings.acks,
            timeout_ms=self._timeout_ms(batches),
            topic_data=[
                TopicProduceData(name=name, topic_id=ids[name], partition_data=rows)
                for name, rows in by_topic.items()
            ],
        )
        return version, request, {topic_id: name for name, topic_id in ids.items()}

    def _timeout_ms(self, batches: list[tuple[PartitionQueue, ProducerBatch]]) -> int:
        now = self._clock.monotonic_ms()
        left = min(batch.deadline_at for _, batch in batches) - now
        return max(_MIN_REQUEST_MS, min(left, self._router.settings.request_timeout_ms))

    def _on_no_answer(
        self, batches: list[tuple[PartitionQueue, ProducerBatch]], error: Error
    ) -> None:
        for queue, batch in batches:
            self._router.metadata.forget(queue.place.topic)
            if may_retry(error):
                self._outcomes.retry(queue, batch)
            else:
                self._outcomes.give_up(queue, [batch], error)

    def _on_answer(
        self,
        link: Link,
        batches: list[tuple[PartitionQueue, ProducerBatch]],
        response: ProduceResponse,
        topics: dict[bytes, str],
    ) -> None:
        self._router.metadata.learn_nodes(
            [Node(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints]
        )
        answers = {
            TopicPartition(topic.name or topics.get(topic.topic_id, ""), answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for queue, batch in batches:
            answer = answers.get(queue.place)
            if answer is None:
                silent = Unavailable(f"broker {link.name} returned nothing for {queue.place.text}")
                self._on_no_answer([(queue, batch)], silent)
            else:
                self._on_result(link, queue, batch, answer)

    def _on_result(
        self,
        link: Link,
        queue: PartitionQueue,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
    ) -> None:
        code = answer.error_code
        if code is ErrorCode.NONE:
            self._outcomes.store(queue, batch, answer.base_offset, answer.log_append_time_ms)
        elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._outcomes.store(queue, batch, -1, -1)
        elif _is_worth_a_retry(code, queue, batch):
            self._learn(queue.place, answer)
            self._outcomes.retry(queue, batch)
        else:
            self._outcomes.give_up(queue, [batch], _refusal(link, queue, answer))

    def _learn(self, place: TopicPartition, answer: PartitionProduceResponse) -> None:
        """Take the new leader from the response, or else refresh the metadata."""
        metadata, hint = self._router.metadata, answer.current_leader
        is_news = hint is not None and metadata.learn_leader(
            place, hint.leader_id, hint.leader_epoch
        )
        if answer.error_code.stale_metadata and not is_news:
            metadata.forget(place.topic)


def _log_failure(task: asyncio.Task[None]) -> None:
    # Log unexpected errors; the affected batches fail at their deadline.
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed in an unforeseen way", task.get_name(), exc_info=error)


def _is_worth_a_retry(code: ErrorCode, queue: PartitionQueue, batch: ProducerBatch) -> bool:
    if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        # After a failed batch, this error is expected. For the first batch in line it means that
        # the broker has lost acknowledged data, which must be reported.
        return not queue.is_first(batch)
    return code.retriable


def _refusal(link: Link, queue: PartitionQueue, answer: PartitionProduceResponse) -> ApiError:
    said = answer.error_message or answer.error_code.sentence
    rows = [
        f"record {row.batch_index}: {row.batch_index_error_message}"
        for row in answer.record_errors[:3]
        if row.batch_index_error_message
    ]
    details = f" ({'; '.join(rows)})" if rows else ""
    return ApiError(
        answer.error_code,
        f"broker {link.name} refused a batch for {queue.place.text}: {said}{details}",
    )
