"""Pins: while one lives, no record of its topic is compacted away.

A reader that may have to read the same offsets again, and get the same records, pins the topics
that are compacted for as long as that can happen. Others need no pin: rewriting changes no record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rookery.clock import Random, SystemRandom
from rookery.cluster.events.pins import TopicPinned, TopicUnpinned
from rookery.cluster.state.topics import Topic
from rookery.direct.log import DirectLog

_POLICY: Final = "cleanup.policy"


def is_compacted(log: DirectLog, topic: Topic) -> bool:
    """Whether a topic is compacted: by its own setting, or by the one for all brokers."""
    policy = topic.configs.get(_POLICY) or log.state.broker_configs.get("", {}).get(
        "log.cleanup.policy", ""
    )
    return "compact" in policy


class Pins:
    """The pins of one reader."""

    def __init__(self, log: DirectLog, hold_ms: int, random: Random | None = None) -> None:
        """Pin nothing yet.

        Args:
            log: where the topics are.
            hold_ms: how long a pin lives unless it is taken back: its owner may be gone.
            random: makes the pin's id.
        """
        self._log = log
        self._hold_ms = hold_ms
        self._id = (random or SystemRandom()).token(16)
        self._held: dict[bytes, int] = {}

    async def hold(self, topic_ids: Iterable[bytes]) -> None:
        """Pin those of some topics that are compacted, and let the others go.

        Raises:
            Unavailable: the cluster log is out of reach.
        """
        topics = self._log.state.topics.by_id
        wanted = {
            one for one in topic_ids if one in topics and is_compacted(self._log, topics[one])
        }
        if not self._hold_ms:
            wanted = set()
        now = self._log.clock.now_ms()
        until = now + self._hold_ms
        # Saying it again costs an entry of the cluster log: half of the time is enough.
        new = [one for one in wanted if self._held.get(one, now) < now + self._hold_ms // 2]
        events: list[TopicPinned | TopicUnpinned] = [
            TopicPinned(topic_id=one, pin_id=self._id, until_ms=until) for one in sorted(new)
        ]
        old = sorted(self._held.keys() - wanted)
        events += [TopicUnpinned(topic_id=one, pin_id=self._id) for one in old]
        if events:
            await self._log.propose(events)
        self._held = {one: until if one in new else self._held[one] for one in wanted}

    async def release(self) -> None:
        """Let all go: nothing will be read again."""
        await self.hold(())
