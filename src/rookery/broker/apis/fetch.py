"""Fetch: batches of many partitions, immediately or as soon as there are any.

    session ──► plan (memory) ─────┬─ enough, or an error ─────────────────────────► answer
                    ▲              ├─ too little: wait for a commit ──┐               ▲
                    └──────────────┼──────────────────────────────────┘               │
                                   ├─ something looks wrong: barrier, plan again      │
                                   └─ on disk: read, some partitions at a time ───────┘

All fields of a response come from one version of the state. There are no followers: a client that
sends a replica id gets an error for each partition, as a Kafka broker answers a replica that does
not follow it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from rookery.broker.call import Call, handles
from rookery.broker.fetchplan import FetchPlan, WantedPartition
from rookery.broker.fetchservice import FetchWait, WatchedPartition, WatchingSession
from rookery.clock import loop_seconds
from rookery.errors import ApiError, Corrupt, Error, ErrorCode
from rookery.log.write.traffic import READ
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

log = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE

Future = asyncio.Future[FetchResponse | None]
Answer = FetchResponse | Future | Coroutine[Any, Any, FetchResponse | None]


@handles(
    FETCH,
    versions=range(4, 19),
    mutates=False,
)
def fetch(call: Call, request: FetchRequest) -> Answer:
    """Return batches; if there are fewer than min_bytes, wait up to max_wait_ms."""
    try:
        session = call.services.fetches.sessions.resume(request, call.version)
    except ApiError as error:
        # As Kafka does, return neither the session nor its partitions here.
        return FetchResponse(error_code=error.code, responses=[])
    pending = _Fetch(call, request, session)
    return pending.start_later() if call.connection.answers.is_full else pending.start()


class _Fetch:
    """One fetch in progress."""

    __slots__ = ("call", "deadline", "future", "request", "session", "undo", "wait")

    def __init__(self, call: Call, request: FetchRequest, session: WatchingSession) -> None:
        self.call = call
        self.request = request
        self.session = session
        self.deadline = -1.0
        self.wait: FetchWait | None = None

    def start(self) -> Answer:
        """Answer immediately if there is nothing to wait for."""
        plan = FetchPlan(self.call, self.request, self.session)
        if plan.is_doubtful:
            return self._plan_after_barrier()
        if self._is_too_little(plan):
            self._park(plan)
            return self.future
        return self._read(plan) if plan.cold else self._answer(plan)

    async def start_later(self) -> FetchResponse | None:
        """Start after other clients have read enough of the responses sent to them."""
        await self.call.connection.answers.wait()
        if self.call.connection.is_closing:
            return None
        answer = self.start()
        return answer if isinstance(answer, FetchResponse) else await answer

    async def _plan_after_barrier(self) -> FetchResponse | None:
        """Plan again after all entries that other brokers have written are applied."""
        await self.call.services.replica.barrier()
        plan = FetchPlan(self.call, self.request, self.session)
        if self._is_too_little(plan):
            self._park(plan)
            return await self.future
        return await self._read(plan)

    # Waiting.

    def _is_too_little(self, plan: FetchPlan) -> bool:
        request = self.request
        if plan.size >= request.min_bytes or plan.has_error or request.max_wait_ms <= 0:
            return False
        session = self.session
        return (
            bool(session.partitions)
            and not session.is_closed
            and not self.call.services.is_draining
        )

    def _may_wait(self, plan: FetchPlan) -> bool:
        """Return whether a fetch that has already waited must continue to wait."""
        is_late = loop_seconds() >= self.deadline
        return self._is_too_little(plan) and not is_late

    def _park(self, plan: FetchPlan) -> None:
        """Wait until enough bytes are available."""
        loop = asyncio.get_running_loop()
        if self.deadline < 0:
            self.deadline = loop_seconds() + self.request.max_wait_ms / 1000
            self.future: Future = loop.create_future()
            self.undo = self.call.connection.when_lost(self._on_lost)
        self.session.follow(plan.sightings)
        # A commit makes more bytes readable than it adds.
        missing = 1 if self.request.isolation_level else self.request.min_bytes - plan.size
        self.wait = FetchWait(
            self.call.services.waiting,
            self.session,
            missing,
            self.deadline - loop_seconds(),
            self._wake,
        )

    def _on_lost(self) -> None:
        """End the fetch because the client has disconnected."""
        if self.wait is not None:
            self.wait.leave()
        self._end()
        if not self.future.done():
            self.future.set_result(None)

    def _end(self) -> None:
        """Release all references back to this fetch.

        Otherwise every fetch that waited would stay in memory, with the records of its response,
        until the cycle collector runs, and clients would notice the collector's pauses.
        """
        self.undo()
        self.undo = _nothing
        self.wait = None
        if not self.session.id:
            self.session.close()

    def _wake(self) -> None:
        if self.future.done():
            return
        try:
            plan = FetchPlan(self.call, self.request, self.session)
            if plan.is_doubtful:
                self.call.services.fetches.spawn(self._plan_again())
            elif self._may_wait(plan):
                self._park(plan)
            elif plan.cold:
                self.call.services.fetches.spawn(self._finish(self._read(plan)))
            else:
                self._settle(self._answer(plan))
        except Exception as error:  # noqa: BLE001 (the root of a callback: the fetch must end)
            self._fail(error)

    async def _plan_again(self) -> None:
        """Plan again after all entries that other brokers have written are applied."""
        try:
            await self.call.services.replica.barrier()
            if self.future.done():
                return
            plan = FetchPlan(self.call, self.request, self.session)
            if self._may_wait(plan):
                self._park(plan)
                return
        except Exception as error:  # noqa: BLE001 (a task's root: the fetch must end)
            self._fail(error)
        else:
            await self._finish(self._read(plan))

    async def _finish(self, answer: Coroutine[Any, Any, FetchResponse]) -> None:
        try:
            self._settle(await answer)
        except Exception as error:  # noqa: BLE001 (a task's root: the fetch must end)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._end()
        if not self.future.done():
            self.future.set_exception(error)

    def _settle(self, response: FetchResponse) -> None:
        self._end()
        if not self.future.done():
            self.future.set_result(response)

    # Reading and answering.

    def _read(self, plan: FetchPlan) -> Coroutine[Any, Any, FetchResponse]:
        """Read batches from disk; reserve their memory now, before another fetch does."""
        if plan.cold:
            self.call.connection.promise(max(plan.size, *(wanted.least for wanted in plan.cold)))
        return self._read_cold(plan)

    async def _read_cold(self, plan: FetchPlan) -> FetchResponse:
        """Read several partitions concurrently; a failure affects only its own partition."""
        if len(plan.cold) == 1:
            await self._fill(plan.cold[0])
        elif plan.cold:
            await asyncio.gather(*map(self._fill, plan.cold))
        return self._answer(plan)

    async def _fill(self, cold: WantedPartition) -> None:
        _, key, partition, offset, limit, is_first, until, *_ = cold
        shared = self.call.services.fetches
        try:
            async with shared.disk:
                records = await shared.reader.read(
                    key, partition, offset, limit, whole_first=is_first, until=until
                )
        except Error as error:
            log.warning("cannot read: %s", error)
            is_corrupt = isinstance(error, Corrupt)
            cold.refuse(ErrorCode.CORRUPT_MESSAGE if is_corrupt else ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if records is None:
            # The records were deleted during the read.
            cold.refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif records.size:
            cold.give(records)
            self._count(key[0], records.next_offset - offset, records.size)

    def _count(self, topic_id: bytes, records: int, size: int) -> None:
        topic = self.call.state.topics.by_id.get(topic_id)
        if topic is not None:
            READ.add(topic_id, topic.name, records, size)

    def _answer(self, plan: FetchPlan) -> FetchResponse:
        for topic_id, records, size in plan.sent:
            self._count(topic_id, records, size)
        session = self.session
        responses: list[FetchableTopicResponse] = []
        served: list[WatchedPartition] = []
        last: object = None
        for watched, answer in plan.answers:
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
            node_endpoints=list(plan.endpoints.values()),
        )

    def _is_news(
        self, watched: WatchedPartition, answer: PartitionData, served: list[WatchedPartition]
    ) -> bool:
        """Return whether a session's response must include the partition."""
        if answer.error_code is not _NONE:
            # Report the partition again after it has recovered.
            watched.high_watermark = -1
            return True
        has_changed = self.session.note(watched, answer.high_watermark, answer.log_start_offset)
        if answer.records:
            served.append(watched)
            return True
        return has_changed or not self.session.is_incremental


def _nothing() -> None:
    """Do nothing; stands in for an `undo` that has already run."""


def _topic_response(watched: WatchedPartition) -> FetchableTopicResponse:
    topic = watched.topic
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])
