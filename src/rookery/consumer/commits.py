"""Commits for a group: by a member of it, or for a group that this stream reads alone."""

from __future__ import annotations

import asyncio

from rookery.consumer.background import Background
from rookery.consumer.checkpoint import Checkpoint
from rookery.consumer.member import Member
from rookery.consumer.source import Source
from rookery.errors import ConfigError


class Commits:
    """Stores how far a group has read."""

    def __init__(self, group: str | None, source: Source, background: Background) -> None:
        self.group = group
        self._source = source
        self._background = background
        self.member: Member | None = None
        """Who vouches for it, if the group has members."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Store it and wait until it is safe.

        Raises:
            ConfigError: the stream has no group.
            ApiError: it is refused.
        """
        if self.group is None:
            raise ConfigError("group: name the group to commit for")
        if self.member is not None:
            self._background.run(self.member.commit(checkpoint.commits()))
        else:
            self._background.run(self._source.commit(self.group, checkpoint))

    async def acommit(self, checkpoint: Checkpoint) -> None:
        """Do the same on an event loop."""
        await asyncio.to_thread(self.commit, checkpoint)
