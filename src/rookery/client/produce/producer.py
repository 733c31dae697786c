"""A producer that batches records and stores them in order, exactly once.

    async with client.producer(ProducerSettings(compression="zstd")) as producer:
        delivery = await producer.send("birds", Record(b"corvus", b"jackdaw"))
        stored = await delivery.wait()

Waiting for each delivery is slow; `flush` waits for all of them together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from rookery.client.connect.cluster import TopicView
from rookery.client.connect.retry import Deadline
from rookery.client.connect.router import Router
from rookery.client.produce.partition import StickyPartitions, partition_of
from rookery.client.produce.producerbatch import Delivery, ProducerBatch, record_size
from rookery.client.produce.sender import Sender
from rookery.client.settings import ACKS_NONE, ProducerSettings
from rookery.clock import Clock, Random
from rookery.errors import ApiError, Error, ErrorCode, Unavailable
from rookery.model.partition import TopicPartition
from rookery.records.batches import HEADER_SIZE
from rookery.records.recordcodec import Record


class Producer:
    """Batches records by partition and sends them; created with `Client.producer`.

    By default it is idempotent: despite failures, a record that is reported as delivered is stored
    exactly once, and the records of a partition are stored in the order of `send`.
    """

    def __init__(
        self, router: Router, settings: ProducerSettings, clock: Clock, random: Random
    ) -> None:
        self._router = router
        self._settings = settings
        self._clock = clock
        self._sticky = StickyPartitions(random)
        self._sender = Sender(router, settings, clock, self._on_settled)
        self._buffered = 0
        self._unsettled: set[ProducerBatch] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._failure: Error | None = None
        self._failures = 0
        self._is_started = False
        self._is_closed = False
        self.delivered_records = 0
        """The number of records stored so far."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def buffered_bytes(self) -> int:
        """The bytes of records whose outcome is not known yet."""
        return self._buffered

    @property
    def retried_batches(self) -> int:
        """The number of times a batch was sent again."""
        return self._sender.outcomes.retried_batches

    async def send(self, topic: str, record: Record, partition: int | None = None) -> Delivery:
        """Add a record; return its delivery, which can be awaited or left to `flush`.

        It waits only while the topic is unknown or the buffer is full.

        Args:
            topic: the topic.
            record: key, value, headers, and a timestamp or -1 for now.
            partition: the partition; None: by the key, or any if there is no key.

        Raises:
            ApiError: the topic or partition does not exist, or the record is too large.
            Unavailable: the buffer stayed full, or the cluster unreachable, until the deadline.
        """
        self._check_open()
        size = record_size(record)
        if size + HEADER_SIZE > self._settings.max_request_bytes:
            raise _too_large(topic, size, self._settings.max_request_bytes)
        view = self._router.metadata.view.topics.get(topic)
        if view is None:
            view = await self._find_topic(topic)
        if self._buffered + size > self._settings.buffer_bytes and self._buffered:
            await self._wait_for_room(size)
        delivery, is_ready = self._append(view, record, size, partition)
        if is_ready:
            # A caller that sends in a loop would otherwise never let the sender run.
            await asyncio.sleep(0)
        return delivery

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything now and wait until all outcomes are known.

        Raises:
            Error: the first error of a record whose delivery was not awaited.
            Unavailable: the deadline expired; records in flight stay in flight.
        """
        deadline = self._router.retrier.deadline(timeout_ms or self._settings.delivery_timeout_ms)
        waiting = [batch.settled for batch in self._unsettled]
        if waiting:
            await self._flush(waiting, deadline)
        if self._settings.acks == ACKS_NONE:
            await self._sender.confirm()
        failure, self._failure = self._failure, None
        count, self._failures = self._failures, 0
        if failure is not None:
            failure.add_note(f"{count} record(s) were not delivered since the last flush")
            raise failure

    async def close(self, timeout_ms: int | None = None) -> None:
        """Flush, then stop; records that are not delivered by the deadline fail.

        Raises:
            Error: as `flush` does.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.flush(timeout_ms)
        finally:
            await self._sender.stop()
            closed = Unavailable("the producer was closed before the record was delivered")
            for batch in list(self._unsettled):
                batch.fail(closed)
            self._unsettled.clear()
            self._let_in()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("the producer is closed; make a new one")

    async def _flush(self, waiting: list[asyncio.Future[tuple[int, int]]], by: Deadline) -> None:
        self._sender.is_flushing = True
        self._sender.wake()
        try:
            _, left = await asyncio.wait(waiting, timeout=by.left_ms / 1000)
        finally:
            self._sender.is_flushing = False
        if left:
            raise Unavailable(
                f"{len(left)} of {len(waiting)} batches were not delivered within "
                f"{by.timeout_ms} ms"
            )

    async def _find_topic(self, name: str) -> TopicView:
        deadline = self._router.retrier.deadline()
        metadata = self._router.metadata
        return await self._router.retrier.run(
            f"produce to topic {name!r}", deadline, lambda: metadata.topic(name, deadline)
        )

    async def _wait_for_room(self, size: int) -> None:
        """Wait until enough other records have been delivered."""
        timeout_ms = self._router.settings.call_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._buffered and self._buffered + size > self._settings.buffer_bytes:
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
                    self._check_open()
        except TimeoutError:
            raise Unavailable(
                f"the producer's buffer of {self._settings.buffer_bytes} bytes stayed full for "
                f"{timeout_ms} ms; brokers take records more slowly than they are sent"
            ) from None

    def _append(
        self, view: TopicView, record: Record, size: int, partition: int | None
    ) -> tuple[Delivery, bool]:
        """Add a record to its batch; also return whether the batch is now full."""
        if record.timestamp < 0:
            record = Record(record.key, record.value, record.headers, self._clock.now_ms())
        number = self._choose(view, record.key, size) if partition is None else partition
        if number not in view.partitions:
            raise _no_partition(view, number)
        queue = self._sender.queue(TopicPartition(view.name, number))
        delivery, is_new = queue.append(record, size, self._clock.monotonic_ms())
        batch = queue.waiting[-1]
        self._buffered += size
        if is_new:
            self._on_new_batch(batch)
        elif batch.is_full:
            self._sender.wake()
        return delivery, batch.is_full

    def _on_new_batch(self, batch: ProducerBatch) -> None:
        self._unsettled.add(batch)
        if not self._is_started:
            self._is_started = True
            self._sender.start()
        self._sender.wake()

    def _choose(self, view: TopicView, key: bytes | None, size: int) -> int:
        if key is not None:
            return partition_of(key, len(view.partitions))

        def has_room(number: int) -> bool:
            return self._sender.queue(TopicPartition(view.name, number)).has_room(size)

        return self._sticky.choose(view.name, view.available or list(view.partitions), has_room)

    def _on_settled(self, batch: ProducerBatch, error: Error | None) -> None:
        self._unsettled.discard(batch)
        self._buffered -= batch.size - HEADER_SIZE
        if error is None:
            self.delivered_records += batch.count
        elif not batch.is_observed:
            self._failure = self._failure or error
            self._failures += batch.count
        self._let_in()

    def _let_in(self) -> None:
        """Wake the callers that wait for room."""
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _too_large(topic: str, size: int, limit: int) -> ApiError:
    return ApiError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a record of {size} bytes for topic {topic!r} is above max_request_bytes ({limit}); raise "
        "it (rookery produce: --max-request-bytes) and the topic's max.message.bytes, or split the "
        "record",
    )


def _no_partition(view: TopicView, number: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PARTITIONS,
        f"topic {view.name!r} has no partition {number}: it has {len(view.partitions)}, "
        "numbered from 0",
    )
