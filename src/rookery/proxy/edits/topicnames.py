"""The names of topics whose ids clients send; brokers are asked for each id once.

An id never belongs to another name, so that a name stays valid after its topic was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rookery.errors import ErrorCode
from rookery.proxy.filterapi import FilterContext
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic

_MAX_NAMES: Final = 100_000


class TopicNames:
    """Finds names by ids, for one virtual cluster."""

    def __init__(self, max_names: int = _MAX_NAMES) -> None:
        self._names: dict[bytes, str] = {}
        self._max_names = max_names

    def get(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None if it is not known yet."""
        return self._names.get(topic_id)

    def find_missing(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return those ids whose names are not known yet."""
        return [each for each in dict.fromkeys(ids) if each not in self._names and any(each)]

    def learn(self, topic_id: bytes, name: str) -> None:
        """Record a name; the oldest one is forgotten when there are too many."""
        if topic_id == ZERO_UUID:
            return
        if len(self._names) >= self._max_names:
            del self._names[next(iter(self._names))]
        self._names[topic_id] = name

    async def find(self, context: FilterContext, ids: list[bytes]) -> None:
        """Ask the broker for the names of some ids; those it does not know stay missing.

        Raises:
            Unavailable: the broker does not answer.
            ApiError: it does not know topics by their ids.
        """
        topics = [MetadataRequestTopic(topic_id=each, name=None) for each in ids]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await context.upstream.send(METADATA, request)
        for topic in response.topics:
            if topic.error_code is ErrorCode.NONE and topic.name:
                self.learn(topic.topic_id, topic.name)
