"""Fetch sessions (KIP-227): a client names only what has changed since its last fetch.

    epoch 0: a session is opened, all partitions are named and answered
    epoch n: the partitions named are added or changed, the forgotten ones go, and only those
             with news are answered
    epoch -1: the session is closed

The number of sessions is bounded: a new one takes the place of one that was not used for long, or
of a smaller one that has had its time; else its client does without, which every client can.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rookery.clock import Clock, Random
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.fetch import FetchPartition, FetchRequest

OPENING: Final = 0
CLOSING: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

TopicKey = bytes | str
"""A topic's id, or its name in versions below 13."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The bounds of fetch sessions."""

    max_sessions: int = 1000
    """Sessions kept (Kafka's max.incremental.fetch.session.cache.slots)."""
    eviction_ms: int = 120_000
    """For so long a session is safe (min.incremental.fetch.session.eviction.ms)."""


class Watched:
    """One partition that is fetched, and what its reader was told last."""

    __slots__ = (
        "high_watermark", "index", "leader_epoch", "log_start", "max_bytes", "offset", "topic",
    )  # fmt: skip

    def __init__(self, topic: TopicKey, part: FetchPartition) -> None:
        self.topic = topic
        self.index = part.partition
        self.high_watermark = -1
        self.log_start = -1
        self.update(part)

    def update(self, part: FetchPartition) -> None:
        """Take over from where on, and how much, the client wants to read."""
        self.offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        self.leader_epoch = part.current_leader_epoch


Partitions = dict[tuple[TopicKey, int], Watched]


class Session:
    """What one client reads; `id` 0 for a fetch without a session."""

    __slots__ = ("created_ms", "epoch", "id", "is_incremental", "partitions", "used_ms", "uses_ids")

    def __init__(self, session_id: int, partitions: Partitions, now_ms: int, *, uses_ids: bool):
        self.id = session_id
        self.epoch = 1
        self.is_incremental = False
        self.partitions = partitions
        self.uses_ids = uses_ids
        self.created_ms = self.used_ms = now_ms

    def told(self, watched: Watched, high_watermark: int, log_start: int) -> bool:
        """Note what is answered for a partition; return whether that is news to the client."""
        is_news = watched.high_watermark != high_watermark or watched.log_start != log_start
        watched.high_watermark, watched.log_start = high_watermark, log_start
        return is_news

    def rotate(self, served: Iterable[Watched]) -> None:
        """Put partitions that had records behind the others: it is their turn next time."""
        partitions = self.partitions
        for watched in served:
            key = (watched.topic, watched.index)
            if partitions.get(key) is watched:
                del partitions[key]
                partitions[key] = watched


class Sessions:
    """The sessions of one broker."""

    def __init__(
        self, clock: Clock, random: Random, settings: SessionSettings | None = None
    ) -> None:
        self._clock = clock
        self._random = random
        self._settings = settings or SessionSettings()
        # The one that was used least recently comes first.
        self._by_id: OrderedDict[int, Session] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def resume(self, request: FetchRequest, version: int) -> Session:
        """Return what a request reads, in its session if it has one.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR; the client opens another session then.
        """
        uses_ids = version >= 13
        if request.session_epoch in {OPENING, CLOSING}:
            self._by_id.pop(request.session_id, None)
            partitions: Partitions = {}
            _include(partitions, request, uses_ids=uses_ids)
            return self._open(request, partitions, uses_ids=uses_ids)
        session = self._find(request, uses_ids=uses_ids)
        _include(session.partitions, request, uses_ids=uses_ids)
        for topic in request.forgotten_topics_data:
            name: TopicKey = topic.topic_id if uses_ids else topic.topic
            for index in topic.partitions:
                session.partitions.pop((name, index), None)
        if not session.partitions:
            # Nothing is left to read: Kafka ends the session, too.
            del self._by_id[session.id]
            return Session(0, {}, 0, uses_ids=uses_ids)
        return session

    def _find(self, request: FetchRequest, *, uses_ids: bool) -> Session:
        session = self._by_id.get(request.session_id)
        if session is None:
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}"
            )
        if session.uses_ids != uses_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session.id} was opened with topic "
                f"{'ids' if session.uses_ids else 'names'}",
            )
        if session.epoch != request.session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, "
                f"not {request.session_epoch}",
            )
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.is_incremental = True
        session.used_ms = self._clock.monotonic_ms()
        self._by_id.move_to_end(session.id)
        return session

    def _open(self, request: FetchRequest, partitions: Partitions, *, uses_ids: bool) -> Session:
        now = self._clock.monotonic_ms()
        is_wanted = request.session_epoch == OPENING and bool(partitions)
        if not is_wanted or not self._has_room(len(partitions), now):
            return Session(0, partitions, now, uses_ids=uses_ids)
        session = Session(self._new_id(), partitions, now, uses_ids=uses_ids)
        self._by_id[session.id] = session
        return session

    def _has_room(self, size: int, now: int) -> bool:
        """Make room for a session of that many partitions, if anybody may be put out for it."""
        if len(self._by_id) < self._settings.max_sessions:
            return True
        if not self._by_id:
            return False
        oldest = next(iter(self._by_id.values()))
        if now - oldest.used_ms < self._settings.eviction_ms:
            oldest = min(self._by_id.values(), key=lambda session: len(session.partitions))
            is_safe = now - oldest.created_ms < self._settings.eviction_ms
            if is_safe or len(oldest.partitions) >= size:
                return False
        del self._by_id[oldest.id]
        self.evicted += 1
        return True

    def _new_id(self) -> int:
        while True:
            found = int.from_bytes(self._random.token(4), "big") & 0x7FFFFFFF
            if found and found not in self._by_id:
                return found


def _include(partitions: Partitions, request: FetchRequest, *, uses_ids: bool) -> None:
    for topic in request.topics:
        name: TopicKey = topic.topic_id if uses_ids else topic.topic
        for part in topic.partitions:
            known = partitions.get((name, part.partition))
            if known is None:
                partitions[name, part.partition] = Watched(name, part)
            else:
                known.update(part)
