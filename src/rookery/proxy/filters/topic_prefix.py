"""Gives every topic of the virtual cluster a prefix in the upstream; clients do not see it.

Several virtual clusters with different prefixes share one upstream without seeing each other's
topics; on request, the ids of groups and transactions have the prefix, too. This keeps names apart;
it is not access control. A client that reaches the upstream sees all topics, and so does a client
that guesses a topic's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from rookery.errors import ConfigError
from rookery.proxy.filterapi import Filter, FilterContext, FilterFunction, Forward, Verdict
from rookery.service.namepattern import NamePattern, quote_regex
from rookery.wire.elements import drop_elements
from rookery.wire.message import (
    Api,
    CoordinatorKey,
    GroupId,
    Message,
    TopicName,
    TopicRegex,
    TransactionalId,
    TransactionalIdRegex,
)
from rookery.wire.messages.find_coordinator import FindCoordinatorRequest
from rookery.wire.walk import has_kind, rewrite


class PrefixedKind(NamedTuple):
    """What else can have the prefix."""

    name: object
    pattern: object | None
    key_type: int
    """In FindCoordinator."""


_OPTIONAL: Final = {
    "groups": PrefixedKind(GroupId, None, 0),
    "transactional_ids": PrefixedKind(TransactionalId, TransactionalIdRegex, 1),
}


class TopicPrefix(Filter):
    """Adds a prefix to names in requests, and removes it in responses."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "prefix": "The prefix of all topics in the upstream.",
        "groups": "Whether the ids of groups have the prefix, too; false by default.",
        "transactional_ids": "Whether transactional ids have the prefix, too; false by default.",
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        prefix = self.options.get("prefix")
        if not isinstance(prefix, str) or not prefix:
            raise ConfigError('set the option prefix, such as {prefix = "orders."}')
        self._prefix = prefix
        self._pattern = quote_regex(prefix)
        self._names: list[object] = [TopicName]
        self._patterns: list[object] = [TopicRegex]
        self._key_types: set[int] = set()
        for option, (name, pattern, key_type) in _OPTIONAL.items():
            chosen = self.options.get(option, False)
            if not isinstance(chosen, bool):
                raise ConfigError(f"{option}: must be true or false")
            if chosen:
                self._names.append(name)
                self._key_types.add(key_type)
                self._patterns += [pattern] if pattern is not None else []

    def functions(self, kind: str, api: Api[Any, Any]) -> list[FilterFunction]:
        """Return the method for every API that has such names."""
        message = api.request if kind == "request" else api.response
        kinds = (*self._names, *self._patterns, *([CoordinatorKey] if self._key_types else []))
        if not any(has_kind(message, each) for each in kinds):
            return []
        return [self.add_prefix if kind == "request" else self.remove_prefix]

    def add_prefix(self, context: FilterContext, request: Message) -> Verdict:
        """Name everything as the upstream does.

        Raises:
            ApiError: a pattern cannot be used.
        """
        if isinstance(request, FindCoordinatorRequest) and request.key_type in self._key_types:
            # The response repeats the keys, and does not say what they are.
            context.notes[self] = True
        for kind in self._names:
            rewrite(request, kind, lambda name: f"{self._prefix}{name}" if name else name)
        for kind in self._patterns:
            rewrite(request, kind, self._add_to_pattern)
        return Forward(request)

    def remove_prefix(self, context: FilterContext, response: Message) -> Verdict:
        """Leave out what has no prefix, and name the rest as clients do."""
        for kind in self._names:
            drop_elements(response, kind, self._is_foreign)
            rewrite(response, kind, self._remove)
        if self in context.notes:
            rewrite(response, CoordinatorKey, self._remove)
        for kind in self._patterns:
            rewrite(response, kind, self._remove_from_pattern)
        return Forward(response)

    def _remove(self, name: str) -> str:
        return name.removeprefix(self._prefix)

    def _is_foreign(self, name: str) -> bool:
        # An error about an unknown topic id has no name.
        return bool(name) and not name.startswith(self._prefix)

    def _add_to_pattern(self, pattern: str) -> str:
        """Return a pattern for names with the prefix.

        Raises:
            ApiError: it is not a pattern by itself, such as `x)|(?:.*`, which would match names
                without the prefix.
        """
        if not pattern:
            return pattern
        NamePattern(pattern)
        return f"{self._pattern}(?:{pattern})"

    def _remove_from_pattern(self, pattern: str) -> str:
        start = f"{self._pattern}(?:"
        return pattern.removeprefix(start).removesuffix(")") if pattern else pattern
