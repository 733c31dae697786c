"""What a member of a group owns, and its commits: the same in both of Kafka's group protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from rookery.client.client import Client
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition

_RETRY_SECONDS: Final = 0.1
_TRIES: Final = 20
_MOVED_ON: Final = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""What a commit is answered with if the group has moved on since we last heard of it."""

Change = Callable[[Sequence[TopicPartition]], Awaitable[None]]
"""Learns of partitions that were given or taken; returns when that is done."""
Offsets = Callable[[], Mapping[TopicPartition, CommittedOffset]]


class MemberPartitions:
    """The partitions of one member, by which id and epoch they are its own, and its commits."""

    def __init__(self, client: Client, group: str, *, is_classic: bool) -> None:
        self._client = client
        self._group = group
        self._is_classic = is_classic
        self.member_id = ""
        self.epoch = -1
        """That of the member, or in a classic group the generation."""
        self.owned: set[TopicPartition] = set()
        """The partitions that are ours."""
        self.look_now = asyncio.Event()
        """Set when the coordinator has news for us."""

    @property
    def identity(self) -> tuple[str, int]:
        """The id and epoch by which commits are vouched for."""
        return self.member_id, self.epoch

    async def change(
        self, wanted: set[TopicPartition], on_given: Change, on_taken: Change
    ) -> tuple[bool, bool]:
        """Own other partitions; return whether any were taken, and whether any were given."""
        taken, given = self.owned - wanted, wanted - self.owned
        if taken:
            # Until the coordinator hears of it they are ours: what was processed can still be
            # committed.
            await on_taken(sorted(taken))
            self.owned -= taken
        if given:
            # First, for rows may be processed and committed before `on_given` returns.
            self.owned |= given
            await on_given(sorted(given))
        return bool(taken), bool(given)

    async def lose_all(self, on_taken: Change) -> None:
        """Drop everything: others may have it by now."""
        lost, self.owned = sorted(self.owned), set()
        if lost:
            await on_taken(lost)

    async def wait(self, interval_ms: int) -> None:
        """Wait until it is time to ask the coordinator again."""
        try:
            async with asyncio.timeout(interval_ms / 1000):
                await self.look_now.wait()
        except TimeoutError:
            pass
        self.look_now.clear()

    async def commit(self, offsets: Offsets) -> None:
        """Store how far we have read; partitions that are not ours any more are left out.

        Args:
            offsets: what there is to be stored; it is asked again before every try.

        Raises:
            ApiError: it is refused.
        """
        for attempt in range(_TRIES):
            ours = {place: one for place, one in offsets().items() if place in self.owned}
            if not ours:
                return
            try:
                await self._client.groups.commit_offsets(
                    self._group, ours, member=self.identity, is_classic=self._is_classic
                )
                return
            except ApiError as error:
                if error.code not in _MOVED_ON or attempt == _TRIES - 1:
                    raise
            self.look_now.set()
            await asyncio.sleep(_RETRY_SECONDS)
