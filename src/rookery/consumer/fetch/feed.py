"""Keeps the shelves filled, with one request in flight per broker.

The feed runs on an event loop in its own thread, so the next fetch is in flight while the caller
processes the previous batch. The planner chooses what is fetched, within the memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from rookery.client.connect.retry import may_retry
from rookery.clock import Clock, Random
from rookery.consumer.faults import CorruptBatch, LogTruncated, OffsetTruncated, TopicGone
from rookery.consumer.fetch.answerintake import AnswerIntake
from rookery.consumer.fetch.planner import LONG_WAIT_MS, LaneRequest, RequestPlanner
from rookery.consumer.fetch.shelf import Shelf, Shelves
from rookery.consumer.fetch.source import FetchSource, PartitionAnswer
from rookery.consumer.settings import StreamSettings
from rookery.errors import ApiError, Corrupt, Error, ErrorCode
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition

log = logging.getLogger(__name__)

_BACKOFF_MS: Final = 50
_MAX_BACKOFF_MS: Final = 1_000
_DELETED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Feed:
    """Fetches for a stream until it is cancelled."""

    def __init__(
        self,
        source: FetchSource,
        shelves: Shelves,
        settings: StreamSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self._source = source
        self._shelves = shelves
        self._settings = settings
        self._clock = clock
        self._random = random
        self._wake = asyncio.Event()
        self._planner = RequestPlanner(shelves, settings)
        self._intake = AnswerIntake(shelves, settings, clock, self._on_error)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_locating = False
        self.fetches = 0
        """The number of fetches made."""

    async def run(self) -> None:
        """Fetch until cancelled; permanent errors are reported to the reader."""
        loop = asyncio.get_running_loop()
        self._shelves.on_room(lambda: _set_from_thread(loop, self._wake))
        try:
            while True:
                self._wake.clear()
                pause_ms = self._start()
                await self._pause(pause_ms)
        except Exception as error:
            self._shelves.fail(error)
            if not isinstance(error, Error):
                log.exception("the feed has ended")
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pause(self, pause_ms: int) -> None:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _start(self) -> int:
        """Send all requests that can be sent; return how long to wait before the next check."""
        if self._planner.is_occupied():
            return LONG_WAIT_MS
        now = self._clock.monotonic_ms()
        with self._shelves.lock:
            unread = [shelf for shelf in self._shelves.by_place.values() if not shelf.is_exhausted]
            ready = [
                shelf
                for shelf in unread
                if not shelf.is_fetching and shelf.fault is None and shelf.retry_at <= now
            ]
            self._find_lanes(ready)
            requests = self._planner.plan(ready, len(unread), now)
        for request in requests:
            self._spawn(self._fetch(request))
        waits = [shelf.retry_at - now for shelf in unread if shelf.retry_at > now]
        return min(waits, default=LONG_WAIT_MS)

    def _find_lanes(self, ready: list[Shelf]) -> None:
        lost = [shelf.place for shelf in ready if shelf.place not in self._planner.lanes]
        if lost and not self._is_locating:
            self._is_locating = True
            self._spawn(self._locate(lost))

    async def _locate(self, places: Sequence[TopicPartition]) -> None:
        try:
            self._planner.lanes.update(await self._source.locate(places))
        except Error as error:
            for place in places:
                self._on_error(self._shelves.by_place[place], error)
        finally:
            self._is_locating = False
            self._wake.set()

    async def _fetch(self, request: LaneRequest) -> None:
        self.fetches += 1
        try:
            answers = await self._source.fetch(
                request.lane, request.wants, request.max_bytes, request.wait_ms
            )
        except Error as error:
            answers = [
                PartitionAnswer(want.place, want.offset, error=error) for want in request.wants
            ]
        finally:
            with self._shelves.lock:
                self._planner.release(request)
            self._wake.set()
        by_place = {answer.place: answer for answer in answers}
        is_alone = len(request.wants) == 1
        with self._shelves.lock:
            for shelf, want in zip(request.shelves, request.wants, strict=True):
                if shelf.position == want.offset and not shelf.is_gone:
                    answer = by_place.get(shelf.place, PartitionAnswer(shelf.place, want.offset))
                    if not answer.is_skipped:
                        self._intake.take(shelf, answer, is_alone=is_alone)
            self._shelves.tell()

    def _on_error(self, shelf: Shelf, error: Error) -> None:
        if isinstance(error, ApiError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            shelf.retry_at = self._clock.monotonic_ms() + _MAX_BACKOFF_MS
            self._spawn(self._explain(shelf))
        elif isinstance(error, Corrupt):
            shelf.fault = CorruptBatch(shelf.place, shelf.position, str(error))
        elif may_retry(error):
            self._retry(shelf, error)
        elif isinstance(error, ApiError) and error.code in _DELETED:
            shelf.fault = TopicGone(shelf.place, shelf.position, str(error))
        else:
            shelf.fault = error

    def _retry(self, shelf: Shelf, error: Error) -> None:
        log.debug("%s: %s", shelf.place.text, error)
        shelf.tries += 1
        shelf.problem = str(error)
        pause = min(_BACKOFF_MS * 2 ** min(shelf.tries - 1, 10), _MAX_BACKOFF_MS)
        shelf.retry_at = self._clock.monotonic_ms() + int(self._random.jitter(pause))
        self._planner.lanes.pop(shelf.place, None)
        self._source.forget(shelf.place)

    async def _explain(self, shelf: Shelf) -> None:
        """Determine why an offset is out of range, and apply the configured policy."""
        try:
            first, last = await asyncio.gather(
                self._source.find({shelf.place: EARLIEST}),
                self._source.find({shelf.place: LATEST}),
            )
        except Error as error:
            with self._shelves.lock:
                self._on_error(shelf, error)
            return
        earliest, latest = first[shelf.place], last[shelf.place]
        with self._shelves.lock:
            shelf.retry_at = 0
            if shelf.position > latest:
                shelf.fault = LogTruncated(shelf.place, shelf.position, latest)
            elif shelf.position < earliest:
                self._pass_over(shelf, earliest)
            self._shelves.changed.append(shelf)
            self._shelves.tell()
        self._wake.set()

    def _pass_over(self, shelf: Shelf, earliest: int) -> None:
        if self._settings.on_truncation == "raise":
            shelf.fault = OffsetTruncated(shelf.place, shelf.position, earliest)
            return
        shelf.lost += min(earliest, shelf.end) - shelf.position
        shelf.position = earliest
        shelf.leader_epoch = -1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._shelves.fail(error)


def _set_from_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event of a loop from another thread; ignore a loop that has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)
