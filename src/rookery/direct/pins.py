"""Pins: while a pin is active, the records that it covers are not compacted away.

A reader that may have to reread the same offsets and get the same records pins the compacted topics
for that time. Other topics need no pin: rewriting changes no record. A continuous reader states the
offsets from which it may have to reread; earlier records can be compacted.

A pin expires and is not renewed. Spark does not notify a source when a batch is over, and a query
that runs once a day would block compaction of its topics all day. A reader whose pin has expired
uses `find_compacted` to find out whether records may be missing. That check compares how far the
partition was compacted then and now, a value that rises with the last step of a pass. One case is
not detected: a pass in progress over an already compacted range, which has removed records but has
not ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rookery.clock import Random, SystemRandom
from rookery.cluster.events.pinevents import PinStart, TopicPinned, TopicUnpinned
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.direct.log import DirectLog
from rookery.log.read.rangeplan import Gap, OffsetRange

_POLICY: Final = "cleanup.policy"
_MOVE_MS: Final = 10_000
"""The minimum time between moves of a pin, since each costs an entry; until then it covers more."""

_COMPACTED: Final = "compacted since they were planned for (a longer pinFor keeps them)"

Starts = Mapping[tuple[bytes, int], int]
"""By topic id and partition, the first offset that may have to be reread."""


class _HeldPin(NamedTuple):
    """The last published pin of a topic."""

    at: int
    until: int
    starts: Mapping[int, int] | None
    """The start offset by partition; None: the whole topic."""

    def covers(self, wanted: Mapping[int, int] | None) -> bool:
        """Whether the pin covers all wanted offsets."""
        if self.starts is None or wanted is None:
            return self.starts is None
        return all(self.starts.get(at, offset + 1) <= offset for at, offset in wanted.items())


def is_compacted(log: DirectLog, topic: Topic) -> bool:
    """Whether a topic is compacted, by its own setting or by the cluster-wide default."""
    policy = topic.configs.get(_POLICY) or log.state.broker_configs.get("", {}).get(
        "log.cleanup.policy", ""
    )
    return "compact" in policy


def find_compacted(state: State, wanted: OffsetRange, cleaned_to: int) -> Gap | None:
    """Return the offsets whose records may be missing because compaction passed `cleaned_to`."""
    topic = state.topics.by_id.get(wanted.topic_id)
    partition = state.topics.partition(wanted.topic_id, wanted.partition)
    if topic is None or partition is None or partition.cleaned_to <= cleaned_to:
        return None
    if partition.cleaned_to <= wanted.begin:
        return None
    end = min(wanted.end, partition.cleaned_to)
    return Gap(topic.name, partition.index, wanted.begin, end, _COMPACTED)


class Pins:
    """The pins of one reader."""

    def __init__(self, log: DirectLog, hold_ms: int, random: Random | None = None) -> None:
        """Set up without any pin.

        Args:
            log: the log that has the topics.
            hold_ms: the lifetime of a pin that is not released: its owner may have died.
            random: generates the pin's id.
        """
        self._log = log
        self._hold_ms = hold_ms
        self._id = (random or SystemRandom()).token(16)
        self._held: dict[bytes, _HeldPin] = {}

    def is_needed(self, topic_id: bytes) -> bool:
        """Whether a topic needs a pin; a log without a cluster log cannot have one."""
        topic = self._log.state.topics.by_id.get(topic_id)
        if topic is None or not self._hold_ms or self._log.place.is_listed:
            return False
        return is_compacted(self._log, topic)

    async def hold(self, topic_ids: Iterable[bytes]) -> None:
        """Pin those of the topics that are compacted, and release all other pins.

        Raises:
            Unavailable: the cluster log cannot be reached.
        """
        await self._hold(dict.fromkeys(topic_ids))

    async def hold_from(self, starts: Starts) -> None:
        """Pin compacted partitions from the given offsets on, and release all other pins.

        Raises:
            Unavailable: the cluster log cannot be reached.
        """
        wanted: dict[bytes, dict[int, int] | None] = {}
        for (topic_id, partition), offset in starts.items():
            offsets = wanted.setdefault(topic_id, {})
            if offsets is not None:
                offsets[partition] = offset
        await self._hold(wanted)

    async def release(self) -> None:
        """Release all pins: nothing will be reread."""
        await self._hold({})

    def have_lapsed(self) -> bool:
        """Whether a pin has expired because it was not renewed."""
        now = self._log.clock.now_ms()
        return any(held.until <= now for held in self._held.values())

    async def _hold(self, wanted: Mapping[bytes, Mapping[int, int] | None]) -> None:
        chosen = {
            topic_id: starts for topic_id, starts in wanted.items() if self.is_needed(topic_id)
        }
        now = self._log.clock.now_ms()
        new = {
            topic_id: _HeldPin(now, now + self._hold_ms, starts)
            for topic_id, starts in chosen.items()
            if self._is_stale(self._held.get(topic_id), starts, now)
        }
        events: list[TopicPinned | TopicUnpinned] = [
            self._event(topic_id, held) for topic_id, held in sorted(new.items())
        ]
        old = sorted(self._held.keys() - chosen.keys())
        events += [TopicUnpinned(topic_id=topic_id, pin_id=self._id) for topic_id in old]
        if events:
            await self._log.propose_all(events)
        self._held = {topic_id: new.get(topic_id) or self._held[topic_id] for topic_id in chosen}

    def _is_stale(self, held: _HeldPin | None, starts: Mapping[int, int] | None, now: int) -> bool:
        """Whether publishing the pin is worth an entry of the cluster log."""
        if held is None or not held.covers(starts):
            return True
        if held.until < now + self._hold_ms // 2:
            return True
        return held.starts != starts and held.at + _MOVE_MS <= now

    def _event(self, topic_id: bytes, held: _HeldPin) -> TopicPinned:
        listed = sorted((held.starts or {}).items())
        return TopicPinned(
            topic_id=topic_id,
            pin_id=self._id,
            until_ms=held.until,
            starts=[PinStart(partition=index, offset=offset) for index, offset in listed],
        )
