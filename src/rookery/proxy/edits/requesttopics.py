"""The topics of the upstream, as far as access control asks about them.

The first question about a topic that is not known yet raises `UnresolvedTopics`. Then the broker is
asked, and the request is checked again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rookery.errors import ErrorCode
from rookery.proxy.edits.topicnames import TopicNames
from rookery.proxy.filterapi import FilterContext
from rookery.wire.message import Message, TopicId, TopicName
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.walk import has_kind, visit


class UnresolvedTopics(Exception):  # noqa: N818 (the name says what happened)
    """A question about topics needs the broker."""

    def __init__(self, *, is_about_all: bool = False) -> None:
        super().__init__("ask the broker")
        self.is_about_all = is_about_all


class UpstreamTopic(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    partitions: int


class RequestTopics:
    """Answers questions about topics for one request."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._topics: dict[str, UpstreamTopic] | None = None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id."""
        name = self._names.get(topic_id)
        if name is None and self._topics is None:
            raise UnresolvedTopics
        return name

    def id_of(self, name: str) -> bytes | None:
        """Return the id of the topic with a name; any id if the broker has none."""
        topic = self._require_topics().get(name)
        return None if topic is None else topic.topic_id

    def names(self) -> list[str]:
        """Return the names of all topics."""
        if self._topics is None:
            raise UnresolvedTopics(is_about_all=True)
        return sorted(self._topics)

    def partitions_of(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist."""
        topic = self._require_topics().get(name)
        return 0 if topic is None else topic.partitions

    async def resolve(
        self, context: FilterContext, request: Message, *, is_about_all: bool
    ) -> None:
        """Ask the broker about the topics of a request, or about all topics.

        Raises:
            Unavailable: the broker does not answer.
            ApiError: it does not answer such a request.
        """
        topics = None if is_about_all else self._list_topics(request)
        self._topics = {}
        if topics == []:
            return
        asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await context.upstream.send(METADATA, asked)
        for topic in response.topics:
            if topic.error_code is ErrorCode.NONE and topic.name:
                self._names.learn(topic.topic_id, topic.name)
                self._topics[topic.name] = UpstreamTopic(topic.topic_id, len(topic.partitions))

    async def resolve_ids(self, context: FilterContext, response: Message) -> None:
        """Find the names of the topics that a response has by their ids."""
        if self._topics is None:
            self._topics = {}
        if has_kind(type(response), TopicId):
            missing = self._names.find_missing(visit(response, TopicId))
            if missing:
                await self._names.find(context, missing)

    def _list_topics(self, request: Message) -> list[MetadataRequestTopic]:
        names: Iterable[Any] = dict.fromkeys(visit(request, TopicName))
        ids = self._names.find_missing(visit(request, TopicId))
        return [
            *(MetadataRequestTopic(name=name) for name in names if name),
            *(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids),
        ]

    def _require_topics(self) -> dict[str, UpstreamTopic]:
        if self._topics is None:
            raise UnresolvedTopics
        return self._topics
