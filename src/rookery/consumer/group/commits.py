"""Commits for a group, either as a member or for a group that this stream reads alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from rookery.consumer.background import Background
from rookery.consumer.checkpoint import Checkpoint
from rookery.consumer.fetch.source import GroupPositions
from rookery.consumer.group.classicmember import ClassicGroupMember
from rookery.consumer.group.member import ConsumerMember
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition


class Commits:
    """Stores the positions of a group."""

    def __init__(self, group: str | None, source: GroupPositions, background: Background) -> None:
        self.group = group
        self._source = source
        self._background = background
        self.member: ConsumerMember | ClassicGroupMember | None = None
        """The member whose identity the commits carry, if the group has members."""
        self._over: set[int] = set()

    def commit(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint and wait until it is durable.

        Raises:
            ConfigError: the stream has no group.
            ApiError: the commit is rejected.
        """
        if self.group is None:
            raise ConfigError("group: name the group to commit for")
        if self.member is not None:
            ours = partial(self._still_ours, checkpoint)
            self._background.run(self.member.holding.commit(ours))
        else:
            self._background.run(self._source.commit(self.group, checkpoint))

    async def acommit(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint from an event loop."""
        await asyncio.to_thread(self.commit, checkpoint)

    def end_stays(self, stays: Iterable[int]) -> None:
        """Stop committing for revoked partitions, even if they are assigned to us again.

        Other members have read further since. A commit for an earlier batch would move the group
        back.
        """
        self._over.update(stays)

    def in_transaction(
        self, checkpoint: Checkpoint
    ) -> tuple[dict[TopicPartition, CommittedOffset], tuple[str, int] | None]:
        """Return the offsets to commit in a transaction, and the identity of the member.

        Raises:
            ApiError: a partition was revoked, so another member processes its rows.
            ConfigError: the checkpoint does not fit into commit metadata.
        """
        if not all(mark.has_room for mark in checkpoint.partitions.values()):
            raise ConfigError(
                "lateness: a commit cannot describe this many rows out of order; "
                "set a smaller lateness, or store the checkpoint with the rows"
            )
        # Read the epoch first: if a partition is revoked after the check below, the group rejects
        # the old epoch.
        member = None if self.member is None else self.member.holding.identity
        offsets = checkpoint.commits()
        lost = sorted(offsets.keys() - self._still_ours(checkpoint).keys())
        if lost:
            names = ", ".join(place.text for place in lost)
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {self.group!r} has taken {names} from this member since it read the batch; "
                "open the stream again to continue where the group has committed",
            )
        return offsets, member

    def _still_ours(self, checkpoint: Checkpoint) -> dict[TopicPartition, CommittedOffset]:
        return {
            place: offset
            for place, offset in checkpoint.commits().items()
            if checkpoint.stays.get(place) not in self._over
        }
