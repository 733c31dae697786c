"""Keeps the shelves filled, with one request in flight per broker.

The feed runs on an event loop in its own thread, so the next fetch is in flight while the caller
processes the previous batch. The memory determines what is fetched. While there is room, every
partition is read ahead; without room, only the partitions that the merge waits for are read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Hashable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from rookery.client.connect.retry import may_retry
from rookery.clock import Clock, Random
from rookery.consumer.faults import CorruptBatch, LogTruncated, OffsetTruncated, TopicGone
from rookery.consumer.fetch import budget, chunks
from rookery.consumer.fetch.shelf import Shelf, Shelves
from rookery.consumer.fetch.source import PartitionAnswer, RowSource, Want
from rookery.consumer.settings import MIB, StreamSettings, ms
from rookery.errors import ApiError, Corrupt, Error, ErrorCode
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition
from rookery.records.batches import FIELDS, HEADER_SIZE, BatchHeader

log = logging.getLogger(__name__)

_MAX_FETCH: Final = 8 * MIB
_MAX_PARTITION: Final = 8 * MIB
# The total read-ahead. More would not be faster, and the data would leave the processor's cache.
_MAX_AHEAD: Final = 128 * MIB
_MIN_PARTITION: Final = 128 * 1024
_MAX_CHUNK: Final = 256 * 1024
_MIN_CHUNK: Final = 16 * 1024
# How long a broker may wait for records. The wait is short if other partitions could be fetched in
# the meantime.
_LONG_WAIT_MS: Final = 500
_SHORT_WAIT_MS: Final = 20
_BACKOFF_MS: Final = 50
_MAX_BACKOFF_MS: Final = 1_000
_TWICE: Final = 2
_DELETED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class _Request(NamedTuple):
    lane: Hashable
    shelves: list[Shelf]
    wants: list[Want]
    max_bytes: int
    reserved: int
    """The bytes that the response may take. A batch is returned whole, even if it is larger than
    requested."""
    wait_ms: int


class Feed:
    """Fetches for a stream until it is cancelled."""

    def __init__(
        self,
        source: RowSource,
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
        self._lanes: dict[TopicPartition, Hashable] = {}
        self._busy: set[Hashable] = set()
        self._reserved = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_locating = False
        self.fetches = 0
        """The number of fetches made."""

    async def run(self) -> None:
        """Fetch until cancelled; permanent errors are reported to the reader."""
        loop = asyncio.get_running_loop()
        self._shelves.on_room(lambda: _tell(loop, self._wake))
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
        if self._is_occupied():
            return _LONG_WAIT_MS
        now = self._clock.monotonic_ms()
        with self._shelves.lock:
            open_ones = [one for one in self._shelves.by_place.values() if not one.is_exhausted]
            ready = [
                one
                for one in open_ones
                if not one.is_fetching and one.fault is None and one.retry_at <= now
            ]
            self._find_lanes(ready)
            requests = self._requests(ready, open_ones, now)
            for request in requests:
                for shelf in request.shelves:
                    shelf.is_fetching = True
                self._busy.add(request.lane)
        for request in requests:
            self._spawn(self._fetch(request))
        waits = [one.retry_at - now for one in open_ones if one.retry_at > now]
        return min(waits, default=_LONG_WAIT_MS)

    def _is_occupied(self) -> bool:
        """Return whether every broker has a request in flight, so that none can be sent now."""
        shelves, lanes = self._shelves, self._lanes
        if not self._busy or not self._busy.issuperset(lanes.values()):
            return False
        with shelves.lock:
            return lanes.keys() >= shelves.by_place.keys()

    def _find_lanes(self, ready: list[Shelf]) -> None:
        lost = [one.place for one in ready if one.place not in self._lanes]
        if lost and not self._is_locating:
            self._is_locating = True
            self._spawn(self._locate(lost))

    async def _locate(self, places: Sequence[TopicPartition]) -> None:
        try:
            self._lanes.update(await self._source.locate(places))
        except Error as error:
            for place in places:
                self._on_error(self._shelves.by_place[place], error)
        finally:
            self._is_locating = False
            self._wake.set()

    def _requests(self, ready: list[Shelf], open_ones: list[Shelf], now: int) -> list[_Request]:
        by_lane: dict[Hashable, list[Shelf]] = {}
        for shelf in ready:
            lane = self._lanes.get(shelf.place)
            if lane is not None and lane not in self._busy:
                by_lane.setdefault(lane, []).append(shelf)
        ahead = min(self._shelves.memory // 2, _MAX_AHEAD)
        share = max(ahead // max(len(open_ones), 1), 1)
        requests = []
        # Partitions that the merge waits for are requested first, since there may not be room for
        # all.
        urgent = [self._lanes.get(shelf.place) for shelf in self._shelves.needed]
        for lane in dict.fromkeys([*urgent, *by_lane]):
            many = by_lane.get(lane, [])
            request = self._request(lane, many, share, now) if many else None
            if request is not None:
                self._reserved += request.reserved
                requests.append(request)
        return requests

    def _request(
        self, lane: Hashable, shelves: list[Shelf], share: int, now: int
    ) -> _Request | None:
        """Build the request to one broker; the lock is held."""
        room = self._shelves.memory - self._shelves.held - self._reserved
        chosen = self._chosen(shelves, share, room)
        picked = set(chosen)
        for one in shelves:
            one.is_passed_over = one not in picked
        if not chosen:
            self._shelves.be_hungry()
            return None
        # One response must have room for all of them: the merge needs rows of each.
        most = max(_MAX_FETCH, _MIN_PARTITION * len(chosen))
        max_bytes = max(1, min(room, most, budget.of_answer(self._settings.memory)))
        each = min(max(share, _MIN_PARTITION), max(max_bytes // len(chosen), _MIN_PARTITION))
        each = max(1, min(each, _MAX_PARTITION, max_bytes))
        max_bytes = min(max_bytes, each * len(chosen))
        wants = [Want(one.place, one.position, each, one.leader_epoch) for one in chosen]
        reserved = max(max_bytes, *(one.batch_bytes for one in chosen))
        wait_ms = self._wait_ms(chosen, now, is_all=len(chosen) == len(shelves))
        return _Request(lane, chosen, wants, max_bytes, reserved, wait_ms)

    def _chosen(self, shelves: list[Shelf], share: int, room: int) -> list[Shelf]:
        here = set(shelves)
        needed = [one for one in self._shelves.needed if one in here]
        if room <= 0:
            # Without room, exactly one batch is allowed. Otherwise the merge could not make
            # progress.
            is_over = self._reserved or not needed or self._shelves.is_over(needed[0])
            return [] if is_over else needed[:1]
        suspects = [one for one in needed if one.is_suspect]
        if suspects:
            return suspects[:1]
        first = set(needed)
        # A batch larger than the room would still be returned whole.
        ahead = [
            one
            for one in shelves
            if one.held < share and one.batch_bytes <= room and one not in first
        ]
        return needed + sorted(ahead, key=lambda one: one.held)

    def _wait_ms(self, chosen: list[Shelf], now: int, *, is_all: bool) -> int:
        """Return how long a broker may wait, so that idle partitions are detected in time."""
        if not is_all or any(one.is_suspect for one in chosen):
            return _SHORT_WAIT_MS
        limit = ms(self._settings.max_idle)
        left = [
            one.empty_since + limit - now
            for one in chosen
            if one.empty_since is not None and one.idle_ms() < limit
        ]
        return max(1, min([_LONG_WAIT_MS, *left]))

    async def _fetch(self, request: _Request) -> None:
        self.fetches += 1
        try:
            answers = await self._source.fetch(
                request.lane, request.wants, request.max_bytes, request.wait_ms
            )
        except Error as error:
            answers = [PartitionAnswer(one.place, one.offset, error=error) for one in request.wants]
        finally:
            with self._shelves.lock:
                self._reserved -= request.reserved
                self._busy.discard(request.lane)
                for shelf in request.shelves:
                    shelf.is_fetching = False
            self._wake.set()
        told = {answer.place: answer for answer in answers}
        is_alone = len(request.wants) == 1
        with self._shelves.lock:
            for shelf, want in zip(request.shelves, request.wants, strict=True):
                if shelf.position == want.offset and not shelf.is_gone:
                    answer = told.get(shelf.place, PartitionAnswer(shelf.place, want.offset))
                    if not answer.is_skipped:
                        self._on_answer(shelf, answer, is_alone=is_alone)
            self._shelves.tell()

    def _on_answer(self, shelf: Shelf, answer: PartitionAnswer, *, is_alone: bool) -> None:
        now = self._clock.monotonic_ms()
        self._shelves.changed.append(shelf)
        if answer.high_watermark >= 0:
            shelf.high_watermark = answer.high_watermark
            if self._settings.is_committed:
                shelf.last_stable_offset = answer.last_stable_offset
        if answer.headers:
            self._take(shelf, answer)
        elif answer.next_offset > shelf.position:
            shelf.position = answer.next_offset
        elif answer.error is None and answer.cut_back_to < 0:
            self._on_nothing(shelf, now, is_alone=is_alone)
        if answer.cut_back_to >= 0:
            shelf.fault = LogTruncated(shelf.place, shelf.position, answer.cut_back_to)
        elif answer.error is not None and not self._may_skip(shelf, answer):
            self._on_error(shelf, answer.error)
        else:
            shelf.is_answered = True
            shelf.heard_at = now
            shelf.tries = 0

    def _may_skip(self, shelf: Shelf, answer: PartitionAnswer) -> bool:
        """Skip a corrupt batch, if the settings allow it and its end can be determined."""
        begin = answer.headers[-1].end if answer.headers else 0
        is_asked = self._settings.on_corrupt == "skip" and isinstance(answer.error, Corrupt)
        if not is_asked or len(answer.data) - begin < HEADER_SIZE:
            return False
        header = BatchHeader._make((*FIELDS.unpack_from(answer.data, begin), begin))
        behind = header.last_offset + 1
        # The numbers of a corrupt batch are trusted only if they are plausible.
        if not shelf.position < behind <= shelf.high_watermark:
            return False
        log.warning(
            "%s: offsets %d to %d skipped: %s",
            shelf.place.text,
            shelf.position,
            behind - 1,
            answer.error,
        )
        shelf.lost += behind - shelf.position
        shelf.position = behind
        return True

    def _take(self, shelf: Shelf, answer: PartitionAnswer) -> None:
        memory, count = self._shelves.memory, len(self._shelves.by_place)
        chunk_bytes = min(max(memory // (4 * count), _MIN_CHUNK), _MAX_CHUNK)
        chunk_rows = self._settings.chunk_rows(count)
        wanted = chunks.ChunkRequest(
            shelf.place, shelf.position, shelf.end, chunk_bytes, chunk_rows
        )
        try:
            found = list(chunks.cut(answer.data, answer.headers, answer.aborted, wanted))
        except Corrupt as error:
            self._on_error(shelf, error)
            return
        self._shelves.put(shelf, found)
        last = answer.headers[-1]
        shelf.position = max(shelf.position, last.last_offset + 1)
        shelf.leader_epoch = last.partition_leader_epoch
        shelf.is_suspect, shelf.empties = False, 0
        shelf.empty_since = None
        if 0 <= shelf.last_readable <= shelf.position:
            # The response reaches the end of the log: no records follow these yet.
            shelf.empty_since = shelf.proved_at = self._clock.monotonic_ms()

    def _on_nothing(self, shelf: Shelf, now: int, *, is_alone: bool) -> None:
        """Distinguish an empty partition from a gap at the end and from a response without room."""
        readable = shelf.last_readable
        if readable < 0 or shelf.position >= min(readable, shelf.end):
            shelf.is_suspect = False
            if shelf.empty_since is None:
                shelf.empty_since = now
            shelf.proved_at = now
            return
        shelf.is_suspect = True
        shelf.empties += is_alone
        if shelf.empties >= _TWICE:
            # Requested alone twice, it returned no records although the log continues: this is a
            # gap.
            shelf.position = min(readable, shelf.end)
            shelf.is_suspect, shelf.empties = False, 0

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
        self._lanes.pop(shelf.place, None)
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


def _tell(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event of a loop from another thread; ignore a loop that has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)
