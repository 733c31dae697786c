"""Fetch: batches of many partitions, now or as soon as there are any.

    session ──► look (memory) ─────┬─ enough, or an error ─────────────────────────► answer
                    ▲              ├─ too little: wait for a commit ──┐               ▲
                    └──────────────┼──────────────────────────────────┘               │
                                   ├─ something looks wrong: barrier, look again      │
                                   └─ on disk: read, some partitions at a time ───────┘

Everything that an answer says comes from one version of the state. Whoever names a replica id is a
reader like any other: nothing here is moved by a fetch.
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
from rookery.security.access import AclResource, Operation, cluster, named
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


def _is_replica(request: FetchRequest) -> bool:
    """The request has a replica id."""
    state = request.replica_state
    return (request.replica_id if state is None else state.replica_id) >= 0


def _is_consumer(request: FetchRequest) -> bool:
    """The request has no replica id."""
    return not _is_replica(request)


@handles(
    FETCH,
    versions=range(4, 19),
    mutates=False,
    touches=(
        named(AclResource.TOPIC, Operation.READ, when=_is_consumer),
        cluster(Operation.CLUSTER_ACTION, when=_is_replica),
    ),
)
def fetch(call: Call, request: FetchRequest) -> Answer:
    """Answer with what is there; wait if that is too little and the client allows it."""
    try:
        session = call.services.fetches.sessions.resume(request, call.version)
    except ApiError as error:
        # Kafka names neither the session nor its partitions here.
        return FetchResponse(error_code=error.code, responses=[])
    started = _Fetch(call, request, session)
    return started.start_later() if call.connection.answers.is_full else started.start()


class _Fetch:
    """One fetch under way."""

    __slots__ = ("call", "deadline", "future", "request", "session", "undo", "wait")

    def __init__(self, call: Call, request: FetchRequest, session: WatchingSession) -> None:
        self.call = call
        self.request = request
        self.session = session
        self.deadline = -1.0
        self.wait: FetchWait | None = None

    def start(self) -> Answer:
        """Answer at once, if nothing has to be waited for."""
        found = FetchPlan(self.call, self.request, self.session)
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

    async def _certain(self) -> FetchResponse | None:
        """Look again with everything applied that other brokers have written."""
        await self.call.services.replica.barrier()
        found = FetchPlan(self.call, self.request, self.session)
        if self._is_too_little(found):
            self._park(found)
            return await self.future
        return await self._read(found)

    # Waiting.

    def _is_too_little(self, found: FetchPlan) -> bool:
        request = self.request
        if found.size >= request.min_bytes or found.has_error or request.max_wait_ms <= 0:
            return False
        session = self.session
        return (
            bool(session.partitions)
            and not session.is_closed
            and not self.call.services.is_draining
        )

    def _may_wait(self, found: FetchPlan) -> bool:
        """Whether a fetch that has waited already must go on waiting."""
        is_late = loop_seconds() >= self.deadline
        return self._is_too_little(found) and not is_late

    def _park(self, found: FetchPlan) -> None:
        """Wait until enough is there."""
        loop = asyncio.get_running_loop()
        if self.deadline < 0:
            self.deadline = loop_seconds() + self.request.max_wait_ms / 1000
            self.future: Future = loop.create_future()
            self.undo = self.call.connection.when_lost(self._lost)
        self.session.follow(found.sightings)
        # A commit makes more readable than it adds.
        missing = 1 if self.request.isolation_level else self.request.min_bytes - found.size
        self.wait = FetchWait(
            self.call.services.waiting,
            self.session,
            missing,
            self.deadline - loop_seconds(),
            self._wake,
        )

    def _lost(self) -> None:
        """Give up: the client is gone."""
        if self.wait is not None:
            self.wait.leave()
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
        self.wait = None
        if not self.session.id:
            self.session.close()

    def _wake(self) -> None:
        if self.future.done():
            return
        try:
            found = FetchPlan(self.call, self.request, self.session)
            if found.is_doubtful:
                self.call.services.fetches.spawn(self._look_again())
            elif self._may_wait(found):
                self._park(found)
            elif found.cold:
                self.call.services.fetches.spawn(self._finish(self._read(found)))
            else:
                self._settle(self._answer(found))
        except Exception as error:  # noqa: BLE001 (the root of a callback: the fetch must end)
            self._fail(error)

    async def _look_again(self) -> None:
        """Look with everything applied that other brokers have written."""
        try:
            await self.call.services.replica.barrier()
            if self.future.done():
                return
            found = FetchPlan(self.call, self.request, self.session)
            if self._may_wait(found):
                self._park(found)
                return
        except Exception as error:  # noqa: BLE001 (a task's root: the fetch must end)
            self._fail(error)
        else:
            await self._finish(self._read(found))

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

    def _read(self, found: FetchPlan) -> Coroutine[Any, Any, FetchResponse]:
        """Read what lies on disk; its memory is counted now, before another fetch asks for some."""
        if found.cold:
            self.call.connection.promise(max(found.size, *(wanted.least for wanted in found.cold)))
        return self._read_cold(found)

    async def _read_cold(self, found: FetchPlan) -> FetchResponse:
        """Read several partitions side by side; one's failure is its own."""
        if len(found.cold) == 1:
            await self._fill(found.cold[0])
        elif found.cold:
            await asyncio.gather(*map(self._fill, found.cold))
        return self._answer(found)

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
            # Deleted while it was read.
            cold.refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif records.size:
            cold.give(records)
            self._count(key[0], records.next_offset - offset, records.size)

    def _count(self, topic_id: bytes, records: int, size: int) -> None:
        topic = self.call.state.topics.by_id.get(topic_id)
        if topic is not None:
            READ.add(topic_id, topic.name, records, size)

    def _answer(self, found: FetchPlan) -> FetchResponse:
        for topic_id, records, size in found.sent:
            self._count(topic_id, records, size)
        session = self.session
        responses: list[FetchableTopicResponse] = []
        served: list[WatchedPartition] = []
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

    def _is_news(
        self, watched: WatchedPartition, answer: PartitionData, served: list[WatchedPartition]
    ) -> bool:
        """Whether a partition belongs into the answer of a session."""
        if answer.error_code is not _NONE:
            # So that it is told again when it is well again.
            watched.high_watermark = -1
            return True
        has_changed = self.session.note(watched, answer.high_watermark, answer.log_start_offset)
        if answer.records:
            served.append(watched)
            return True
        return has_changed or not self.session.is_incremental


def _nothing() -> None:
    """Undo what was undone."""


def _topic_response(watched: WatchedPartition) -> FetchableTopicResponse:
    topic = watched.topic
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])
