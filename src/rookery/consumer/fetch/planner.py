"""Chooses what is fetched next: which partitions of which broker, how much, and how long to wait.

While there is room, every partition is read ahead; without room, only the partitions that the merge
waits for are read. Room is reserved for the responses to all requests in flight.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from rookery.consumer.fetch import budget
from rookery.consumer.fetch.shelf import Shelf, Shelves
from rookery.consumer.fetch.source import Want
from rookery.consumer.settings import MIB, StreamSettings, ms
from rookery.model.partition import TopicPartition

_MAX_FETCH: Final = 8 * MIB
_MAX_PARTITION: Final = 8 * MIB
# The total read-ahead. More would not be faster, and the data would leave the processor's cache.
_MAX_AHEAD: Final = 128 * MIB
_MIN_PARTITION: Final = 128 * 1024
# How long a broker may wait for records. The wait is short if other partitions could be fetched in
# the meantime.
LONG_WAIT_MS: Final = 500
_SHORT_WAIT_MS: Final = 20


class LaneRequest(NamedTuple):
    """A request to one broker."""

    lane: Hashable
    shelves: list[Shelf]
    wants: list[Want]
    max_bytes: int
    reserved: int
    """The bytes that the response may take. A batch is returned whole, even if it is larger than
    requested."""
    wait_ms: int


class RequestPlanner:
    """Plans requests, one in flight per broker, within the memory of the stream."""

    def __init__(self, shelves: Shelves, settings: StreamSettings) -> None:
        self._shelves = shelves
        self._settings = settings
        self._busy: set[Hashable] = set()
        self._reserved = 0
        self.lanes: dict[TopicPartition, Hashable] = {}
        """The lane of each partition, as far as it is known."""

    def is_occupied(self) -> bool:
        """Return whether every broker has a request in flight, so that none can be sent now."""
        shelves, lanes = self._shelves, self.lanes
        if not self._busy or not self._busy.issuperset(lanes.values()):
            return False
        with shelves.lock:
            return lanes.keys() >= shelves.by_place.keys()

    def plan(self, ready: list[Shelf], open_count: int, now: int) -> list[LaneRequest]:
        """Return requests for some partitions, which are in flight from now on; the lock is held.

        Args:
            ready: the partitions that can be requested.
            open_count: the number of partitions that are not read to their end; they share the
                room.
            now: the time in monotonic milliseconds.
        """
        by_lane: dict[Hashable, list[Shelf]] = {}
        for shelf in ready:
            lane = self.lanes.get(shelf.place)
            if lane is not None and lane not in self._busy:
                by_lane.setdefault(lane, []).append(shelf)
        ahead = min(self._shelves.memory // 2, _MAX_AHEAD)
        share = max(ahead // max(open_count, 1), 1)
        requests = []
        # Partitions that the merge waits for are requested first, since there may not be room for
        # all.
        urgent = [self.lanes.get(shelf.place) for shelf in self._shelves.needed]
        for lane in dict.fromkeys([*urgent, *by_lane]):
            many = by_lane.get(lane, [])
            request = self._request(lane, many, share, now) if many else None
            if request is not None:
                self._reserved += request.reserved
                requests.append(request)
        for request in requests:
            for shelf in request.shelves:
                shelf.is_fetching = True
            self._busy.add(request.lane)
        return requests

    def release(self, request: LaneRequest) -> None:
        """Record that a request is no longer in flight; the lock is held."""
        self._reserved -= request.reserved
        self._busy.discard(request.lane)
        for shelf in request.shelves:
            shelf.is_fetching = False

    def _request(
        self, lane: Hashable, shelves: list[Shelf], share: int, now: int
    ) -> LaneRequest | None:
        """Build the request to one broker; the lock is held."""
        room = self._shelves.memory - self._shelves.held - self._reserved
        chosen = self._choose(shelves, share, room)
        picked = set(chosen)
        for shelf in shelves:
            shelf.is_passed_over = shelf not in picked
        if not chosen:
            self._shelves.be_hungry()
            return None
        # One response must have room for all of them: the merge needs rows of each.
        most = max(_MAX_FETCH, _MIN_PARTITION * len(chosen))
        max_bytes = max(1, min(room, most, budget.of_answer(self._settings.memory)))
        each = min(max(share, _MIN_PARTITION), max(max_bytes // len(chosen), _MIN_PARTITION))
        each = max(1, min(each, _MAX_PARTITION, max_bytes))
        max_bytes = min(max_bytes, each * len(chosen))
        wants = [Want(shelf.place, shelf.position, each, shelf.leader_epoch) for shelf in chosen]
        reserved = max(max_bytes, *(shelf.batch_bytes for shelf in chosen))
        wait_ms = self._wait_ms(chosen, now, is_all=len(chosen) == len(shelves))
        return LaneRequest(lane, chosen, wants, max_bytes, reserved, wait_ms)

    def _choose(self, shelves: list[Shelf], share: int, room: int) -> list[Shelf]:
        here = set(shelves)
        needed = [shelf for shelf in self._shelves.needed if shelf in here]
        if room <= 0:
            # Without room, exactly one batch is allowed. Otherwise the merge could not make
            # progress.
            is_over = self._reserved or not needed or self._shelves.is_over(needed[0])
            return [] if is_over else needed[:1]
        suspects = [shelf for shelf in needed if shelf.is_suspect]
        if suspects:
            return suspects[:1]
        first = set(needed)
        # A batch larger than the room would still be returned whole.
        ahead = [
            shelf
            for shelf in shelves
            if shelf.held < share and shelf.batch_bytes <= room and shelf not in first
        ]
        return needed + sorted(ahead, key=lambda shelf: shelf.held)

    def _wait_ms(self, chosen: list[Shelf], now: int, *, is_all: bool) -> int:
        """Return how long a broker may wait, so that idle partitions are detected in time."""
        if not is_all or any(shelf.is_suspect for shelf in chosen):
            return _SHORT_WAIT_MS
        limit = ms(self._settings.max_idle)
        left = [
            shelf.empty_since + limit - now
            for shelf in chosen
            if shelf.empty_since is not None and shelf.idle_ms() < limit
        ]
        return max(1, min([LONG_WAIT_MS, *left]))
