"""Gives every topic of the virtual cluster a prefix in the upstream; clients do not see it.

Several virtual clusters with different prefixes share one upstream without seeing each other's
topics. This keeps names apart; it is no access control. A client that reaches the upstream sees all
topics, and so does a client that guesses a topic's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rookery.errors import ConfigError
from rookery.proxy.filterapi import Filter, FilterContext, FilterFunction, Forward, Verdict
from rookery.wire.elements import drop_elements
from rookery.wire.message import Api, Message, TopicName, TopicRegex
from rookery.wire.walk import has_kind, rewrite

_SPECIAL = frozenset(r"\.+*?()|[]{}^$")


class TopicPrefix(Filter):
    """Adds a prefix to topic names in requests, and removes it in responses."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"prefix": "The prefix of all topics in the upstream."}

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        prefix = self.options.get("prefix")
        if not isinstance(prefix, str) or not prefix:
            raise ConfigError('set the option prefix, such as {prefix = "orders."}')
        self._prefix = prefix
        self._pattern = "".join(f"\\{each}" if each in _SPECIAL else each for each in prefix)

    def functions(self, kind: str, api: Api[Any, Any]) -> list[FilterFunction]:
        """Return the method for every API that has names of topics."""
        message = api.request if kind == "request" else api.response
        if not has_kind(message, TopicName) and not has_kind(message, TopicRegex):
            return []
        return [self.add_prefix if kind == "request" else self.remove_prefix]

    def add_prefix(self, context: FilterContext, request: Message) -> Verdict:
        """Name topics as the upstream does."""
        rewrite(request, TopicName, lambda name: f"{self._prefix}{name}" if name else name)
        rewrite(request, TopicRegex, self._add_to_pattern)
        return Forward(request)

    def remove_prefix(self, context: FilterContext, response: Message) -> Verdict:
        """Leave out topics without the prefix, and name the others as clients do."""
        drop_elements(response, TopicName, self._is_foreign)
        rewrite(response, TopicName, lambda name: name.removeprefix(self._prefix))
        rewrite(response, TopicRegex, self._remove_from_pattern)
        return Forward(response)

    def _is_foreign(self, name: str) -> bool:
        # An error about an unknown topic id has no name.
        return bool(name) and not name.startswith(self._prefix)

    def _add_to_pattern(self, pattern: str) -> str:
        return f"{self._pattern}(?:{pattern})" if pattern else pattern

    def _remove_from_pattern(self, pattern: str) -> str:
        start = f"{self._pattern}(?:"
        return pattern.removeprefix(start).removesuffix(")") if pattern else pattern
