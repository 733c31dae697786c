"""The partitions that a group member owns, and its commits, for both Kafka group protocols."""

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
"""The errors of a commit if the group has changed since the last heartbeat."""

Change = Callable[[Sequence[TopicPartition]], Awaitable[None]]
"""Called with assigned or revoked partitions; returns when the change is complete."""
Offsets = Callable[[], Mapping[TopicPartition, CommittedOffset]]


class MemberPartitions:
    """The partitions of one member, its id and epoch, and its commits."""

    def __init__(self, client: Client, group: str, *, is_classic: bool) -> None:
        self._client = client
        self._group = group
        self._is_classic = is_classic
        self.member_id = ""
        self.epoch = -1
        """The member epoch, or in a classic group the generation."""
        self.owned: set[TopicPartition] = set()
        """The partitions that this member owns."""
        self.contact_now = asyncio.Event()
        """Set to contact the coordinator without waiting for the interval."""

    @property
    def identity(self) -> tuple[str, int]:
        """The member id and epoch that commits carry."""
        return self.member_id, self.epoch

    async def change(
        self, wanted: set[TopicPartition], on_given: Change, on_taken: Change
    ) -> tuple[bool, bool]:
        """Apply a new assignment; return whether any were revoked and whether any were added."""
        taken, given = self.owned - wanted, wanted - self.owned
        if taken:
            # Until the coordinator is notified, the partitions are ours, so processed rows can
            # still be committed.
            await on_taken(sorted(taken))
            self.owned -= taken
        if given:
            # Update this first: rows may be processed and committed before `on_given` returns.
            self.owned |= given
            await on_given(sorted(given))
        return bool(taken), bool(given)

    async def lose_all(self, on_taken: Change) -> None:
        """Drop all partitions, since other members may already own them."""
        lost, self.owned = sorted(self.owned), set()
        if lost:
            await on_taken(lost)

    async def wait(self, interval_ms: int) -> None:
        """Wait until the next request to the coordinator is due."""
        try:
            async with asyncio.timeout(interval_ms / 1000):
                await self.contact_now.wait()
        except TimeoutError:
            pass
        self.contact_now.clear()

    async def commit(self, offsets: Offsets) -> None:
        """Commit offsets; partitions that are no longer ours are left out.

        Args:
            offsets: returns the offsets to commit; it is called before every try.

        Raises:
            ApiError: the commit is rejected.
        """
        for attempt in range(_TRIES):
            ours = {place: offset for place, offset in offsets().items() if place in self.owned}
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
            self.contact_now.set()
            await asyncio.sleep(_RETRY_SECONDS)
