"""Refuses some APIs, and the topics whose names match some patterns.

A request that names both denied and other topics is cut: the others pass, and the denied ones are
refused in the same response. Responses leave denied topics out. A request that names topics by
their ids only cannot name a denied one, because no response gives a client its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.proxy.filterapi import (
    FORWARD,
    Answer,
    Close,
    Filter,
    FilterContext,
    FilterFunction,
    Forward,
    Verdict,
    if_noted,
)
from rookery.service.namepattern import NamePattern
from rookery.wire.catalog import kafka_apis
from rookery.wire.elements import drop_elements
from rookery.wire.message import Api, Message, TopicName
from rookery.wire.partition import Halves, cut, join
from rookery.wire.walk import has_kind, visit


class Deny(Filter):
    """Refuses APIs and topics."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "apis": "The names of the APIs that are refused, such as CreateTopics.",
        "topics": "Regular expressions (RE2); topics whose whole name matches one are refused.",
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._apis = frozenset(_texts(self.options, "apis"))
        names = {api.name for api in kafka_apis().values()}
        unknown = sorted(self._apis - names)
        if unknown:
            raise ConfigError(f"apis: there is no API {unknown[0]!r}")
        try:
            self._topics = [NamePattern(text) for text in _texts(self.options, "topics")]
        except ApiError as error:
            raise ConfigError(f"topics: {error}") from error

    def functions(self, kind: str, api: Api[Any, Any]) -> list[FilterFunction]:
        """Return the method for a refused API, or for one that names topics."""
        if api.name in self._apis:
            return [self.refuse] if kind == "request" else []
        message = api.request if kind == "request" else api.response
        if not self._topics or not has_kind(message, TopicName):
            return []
        if kind == "request":
            return [self.cut_request]
        return [self.hide_topics, self.join_refusal]

    def refuse(self, context: FilterContext, request: Message) -> Verdict:
        """Refuse the whole request."""
        return Answer(context.api.refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    def cut_request(self, context: FilterContext, request: Message) -> Verdict:
        """Forward what is left without the denied topics, and refuse those."""
        if not any(map(self._is_denied, visit(request, TopicName))):
            return FORWARD
        api, code = context.api, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if api.is_one_way(request):
            # As Kafka does it: there is no other way to tell the client.
            return Close("a request without a response names a denied topic")
        try:
            halves = cut(
                api,
                context.version,
                request,
                lambda name: name is None or not self._is_denied(name),
                TopicName,
                keeps_all=True,
            )
        except TypeError:
            # Its topics are not items that could be refused one by one.
            return Answer(api.refuse(request, code))
        if halves.kept is None:
            return Answer(api.refuse_items(request, code))
        context.notes[self] = halves
        return Forward(halves.kept)

    @if_noted
    def join_refusal(self, context: FilterContext, response: Message) -> Verdict:
        """Complete the response to what was left of a request."""
        halves: Halves[Any, Any] = context.notes[self]
        refusal = context.api.refuse_items(halves.denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return Forward(join(halves, response, refusal))

    def hide_topics(self, context: FilterContext, response: Message) -> Verdict:
        """Leave denied topics out of a response."""
        if any(map(self._is_denied, visit(response, TopicName))):
            drop_elements(response, TopicName, self._is_denied)
            return Forward(response)
        return FORWARD

    def _is_denied(self, name: str) -> bool:
        return any(pattern.matches(name) for pattern in self._topics)


def _texts(options: Mapping[str, Any], name: str) -> list[str]:
    values = options.get(name, [])
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ConfigError(f"{name}: must be a list of texts")
    return values
