"""Finds batches that are ready and their leaders, and passes them to each broker's lane.

One task finds the ready partitions and their leaders. One task per broker builds requests from the
batches that are ready there. Each request in flight is a task, so there are at most five per
broker, regardless of the number of records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from rookery.client.connect.connections import Link
from rookery.client.connect.retry import may_retry
from rookery.client.connect.router import Router
from rookery.client.produce.lane import BrokerLane
from rookery.client.produce.outcomes import Outcomes
from rookery.client.produce.producerbatch import PartitionQueue, ProducerBatch
from rookery.client.settings import ProducerSettings
from rookery.clock import Clock
from rookery.errors import ApiError, Error, ErrorCode, Unavailable
from rookery.model.node import Node
from rookery.model.partition import TopicPartition
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest

log = logging.getLogger(__name__)


class Sender:
    """Routes ready batches; owns the queues and the lanes."""

    def __init__(
        self,
        router: Router,
        settings: ProducerSettings,
        clock: Clock,
        on_settled: Callable[[ProducerBatch, Error | None], None],
    ) -> None:
        """Create a sender that is not started.

        Args:
            router: for metadata, connections and retries.
            settings: the producer's.
            clock: for deadlines.
            on_settled: called with each batch when its outcome is final.
        """
        self._router = router
        self._settings = settings
        self._clock = clock
        self.outcomes = Outcomes(router.retrier, clock, on_settled)
        self.is_flushing = False
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # The queues that may have batches waiting or in flight.
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._lanes: dict[int, BrokerLane] = {}
        self._task: asyncio.Task[None] | None = None
        self._side_tasks: dict[str, asyncio.Task[None]] = {}
        self._refresh_tries = 0
        self._refresh_at = 0
        self._producer: tuple[int, int] | None = None

    def start(self) -> None:
        """Start the sender."""
        self._task = asyncio.create_task(self._run(), name="rookery-producer")

    def wake(self) -> None:
        """Check again which batches are ready."""
        self.outcomes.news.set()

    def queue(self, place: TopicPartition) -> PartitionQueue:
        """Return a partition's queue, to append to it."""
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = PartitionQueue(place, self._settings)
            if self._producer is not None:
                queue.restart(*self._producer)
        self._busy[place] = queue
        return queue

    async def confirm(self) -> None:
        """Wait until brokers have read batches sent without acknowledgement (acks=0)."""
        for lane in list(self._lanes.values()):
            await lane.confirm()

    async def stop(self) -> None:
        """End all tasks; batches in flight fail."""
        lanes = [task for lane in self._lanes.values() for task in lane.tasks]
        tasks = [*lanes, *self._side_tasks.values()]
        if self._task is not None:
            tasks.append(self._task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self.outcomes.news.clear()
            try:
                pause_ms = self._dispatch()
            except Exception:
                # An unexpected error here must not leave callers waiting silently.
                log.exception("the producer cannot continue")
                raise
            try:
                async with asyncio.timeout(None if pause_ms is None else pause_ms / 1000):
                    await self.outcomes.news.wait()
            except TimeoutError:
                pass

    def _dispatch(self) -> int | None:
        """Pass ready batches to the lanes; return the time until the next batch is ready."""
        now = self._clock.monotonic_ms()
        soonest: int | None = None
        lost: set[TopicPartition] = set()
        for queue in list(self._busy.values()):
            if queue.is_idle:
                del self._busy[queue.place]
                continue
            at = self._dispatch_one(queue, now, lost)
            if at is not None:
                soonest = at if soonest is None else min(soonest, at)
        if lost and now < self._refresh_at:
            soonest = self._refresh_at if soonest is None else min(soonest, self._refresh_at)
        elif lost:
            self._start("metadata", lambda: self._find_leaders(lost))
        return None if soonest is None else max(1, soonest - now)

    def _dispatch_one(
        self, queue: PartitionQueue, now: int, lost: set[TopicPartition]
    ) -> int | None:
        """Pass one queue to its leader's lane if it is ready; return when to check again."""
        if expired := queue.drop_expired(now):
            self.outcomes.give_up(
                queue, expired, _too_late(queue, self._settings.delivery_timeout_ms)
            )
        ready_at = queue.ready_at()
        if ready_at is None:
            return None
        if self.is_flushing:
            ready_at = queue.retry_at
        deadline_at = queue.waiting[0].deadline_at
        if ready_at > now:
            return min(ready_at, deadline_at)
        if queue.needs_producer_id:
            self._start("producer id", self._get_producer_id)
            return deadline_at
        leader = self._router.metadata.leader(queue.place)
        if leader is None:
            lost.add(queue.place)
        elif not queue.in_flight or queue.node == leader.id:
            self._lane(leader).offer(queue)
        return deadline_at

    def _lane(self, node: Node) -> BrokerLane:
        lane = self._lanes.get(node.id)
        if lane is None:
            lane = self._lanes[node.id] = BrokerLane(
                node.id, self._router, self._settings, self._clock, self.outcomes
            )
        return lane

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._side_tasks:
            task = self._side_tasks[name] = asyncio.create_task(work())
            task.add_done_callback(lambda _: self._on_ended(name))

    def _on_ended(self, name: str) -> None:
        task = self._side_tasks.pop(name)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the producer's %s failed", name, exc_info=error)
        self.wake()

    async def _get_producer_id(self) -> None:
        """Request a producer id for all queues that have none."""
        deadline = self._router.retrier.deadline(self._settings.delivery_timeout_ms)
        try:
            producer_id, epoch = await self._router.ask_any(
                "get a producer id", _init_producer_id, deadline
            )
        except Error as error:
            for queue in self._queues.values():
                if queue.needs_producer_id:
                    self.outcomes.give_up(queue, queue.drop_all(), error)
            return
        for queue in self._queues.values():
            if queue.needs_producer_id:
                queue.restart(producer_id, epoch)
        self._producer = producer_id, epoch

    async def _find_leaders(self, lost: set[TopicPartition]) -> None:
        """Request leaders; fail batches that can never have one."""
        metadata = self._router.metadata
        deadline = self._router.retrier.deadline(self._router.settings.request_timeout_ms)
        try:
            await metadata.refresh({place.topic for place in lost}, deadline)
        except Error as error:
            log.info("no metadata: %s", error)
            if not may_retry(error):
                self._give_up_all(lost, error)
        for place in lost:
            self._give_up_if_lost(place)
        self._pause_refresh(has_leaders=all(metadata.leader(place) for place in lost))

    def _pause_refresh(self, *, has_leaders: bool) -> None:
        self._refresh_tries = 0 if has_leaders else self._refresh_tries + 1
        pause = self._router.retrier.backoff_ms(max(1, self._refresh_tries))
        self._refresh_at = self._clock.monotonic_ms() + int(pause)

    def _give_up_if_lost(self, place: TopicPartition) -> None:
        try:
            self._router.metadata.find(place)
        except Error as error:
            if not may_retry(error):
                self._give_up_all({place}, error)

    def _give_up_all(self, places: set[TopicPartition], error: Error) -> None:
        for place in places:
            queue = self._queues[place]
            self.outcomes.give_up(queue, queue.drop_all(), error)


async def _init_producer_id(link: Link, timeout_ms: int) -> tuple[int, int]:
    version = link.versions.choose(INIT_PRODUCER_ID)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
    answer = await link.call(INIT_PRODUCER_ID, version, request, timeout_ms)
    if answer.error_code is not ErrorCode.NONE:
        raise ApiError(
            answer.error_code,
            f"broker {link.name} gave no producer id: {answer.error_code.sentence} "
            "Set is_idempotent=False if you can bear duplicates.",
        )
    return answer.producer_id, answer.producer_epoch


def _too_late(queue: PartitionQueue, timeout_ms: int) -> Unavailable:
    return Unavailable(
        f"{queue.place.text}: not delivered within {timeout_ms} ms; whether the broker has "
        "stored records that were sent before is not known. Check that its leader is up."
    )
