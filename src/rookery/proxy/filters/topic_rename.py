"""Gives topics other names for clients than the upstream has.

Two names that are exchanged stay two topics: if clients call the upstream's `orders-v2` `orders`,
they see a topic that the upstream calls `orders` as `orders-v2`. So no topic has two names, and
none is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar, Final

from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.proxy.filterapi import (
    FORWARD,
    Filter,
    FilterContext,
    FilterFunction,
    Forward,
    Verdict,
)
from rookery.service.namepattern import NamePattern, quote_regex
from rookery.wire.message import Api, Message, TopicName, TopicRegex
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.walk import has_kind, rewrite, visit

_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class TopicRename(Filter):
    """Renames topics in requests, and back in responses."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "topics": "A table of the names that clients use, with those of the upstream."
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        topics = self.options.get("topics")
        if not isinstance(topics, dict) or not topics:
            raise ConfigError('set the option topics, such as {orders = "orders-v2"}')
        for name in (*topics, *topics.values()):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ConfigError(f"topics: {name!r} cannot be the name of a topic")
        self._upstream_of = complete(topics)
        self._name_of = {there: here for here, there in self._upstream_of.items()}

    def functions(self, kind: str, api: Api[Any, Any]) -> list[FilterFunction]:
        """Return the method for every API that has names of topics."""
        message = api.request if kind == "request" else api.response
        if not has_kind(message, TopicName) and not has_kind(message, TopicRegex):
            return []
        return [self.rename if kind == "request" else self.restore]

    def rename(self, context: FilterContext, request: Message) -> Verdict | Awaitable[Verdict]:
        """Name topics as the upstream does."""
        texts = [text for text in visit(request, TopicRegex) if text]
        if self._upstream_of.keys().isdisjoint(visit(request, TopicName)) and not texts:
            return FORWARD
        patterns = {text: RenamedPattern(text, self._upstream_of) for text in texts}
        if any(pattern.unmeant for pattern in patterns.values()):
            return self._rename_later(context, request, patterns)
        return self._rename(request, patterns)

    async def _rename_later(
        self, context: FilterContext, request: Message, patterns: Mapping[str, RenamedPattern]
    ) -> Verdict:
        """Rename unless a pattern would match a topic that clients do not mean.

        Raises:
            ApiError: it would: a pattern can be extended, but no topic can be taken out of it.
        """
        names = {name for pattern in patterns.values() for name in pattern.unmeant}
        topics = [MetadataRequestTopic(name=name) for name in sorted(names)]
        asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await context.upstream.send(METADATA, asked)
        for topic in response.topics:
            if topic.name in names and topic.error_code is not _UNKNOWN:
                raise ApiError(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"a pattern matches the upstream's {topic.name!r}, which clients call "
                    f"{self._name_of[topic.name]!r}; name the topics instead",
                )
        return self._rename(request, patterns)

    def _rename(self, request: Message, patterns: Mapping[str, RenamedPattern]) -> Verdict:
        names = self._upstream_of
        rewrite(request, TopicName, lambda name: names.get(name, name))
        rewrite(request, TopicRegex, lambda text: patterns[text].text if text else text)
        return Forward(request)

    def restore(self, context: FilterContext, response: Message) -> Verdict:
        """Name topics as clients do."""
        names = self._name_of
        if names.keys().isdisjoint(visit(response, TopicName)):
            return FORWARD
        rewrite(response, TopicName, lambda name: names.get(name, name))
        return Forward(response)


class RenamedPattern:
    """A pattern of a client, over the names of the upstream."""

    def __init__(self, text: str, upstream_of: Mapping[str, str]) -> None:
        """Extend a pattern.

        Args:
            text: the text of the pattern, over the names of clients.
            upstream_of: the upstream's name of each renamed topic.

        Raises:
            ApiError: it is not a pattern.
        """
        pattern = NamePattern(text)
        added: list[str] = []
        self.unmeant: list[str] = []
        """Names of the upstream that the pattern matches, although clients call them otherwise."""
        for here, there in upstream_of.items():
            if pattern.matches(here) and not pattern.matches(there):
                added.append(quote_regex(there))
            elif pattern.matches(there) and not pattern.matches(here):
                self.unmeant.append(there)
        self.text = "|".join([f"(?:{text})", *added]) if added else text


def complete(topics: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the upstream by those of clients, with every name on both sides.

    Raises:
        ConfigError: two names stand for the same topic.
    """
    if len(set(topics.values())) < len(topics):
        raise ConfigError("topics: two names stand for the same topic")
    origin = {there: here for here, there in topics.items()}
    whole = dict(topics)
    for there in topics.values():
        if there in topics:
            continue
        # The end of a chain of names gets the name that its start left.
        start = there
        while start in origin:
            start = origin[start]
        whole[there] = start
    return whole
