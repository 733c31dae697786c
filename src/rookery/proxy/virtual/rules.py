r"""Which topics have virtual partitions: the table `virtual` of a virtual cluster.

[proxy.clusters.shop.virtual]
virtual_partitions = 100              the default for topics that nothing below names; optional
physical_partitions = 10

[proxy.clusters.shop.virtual.topics."orders"]
virtual_partitions = 1000
physical_partitions = 100

[proxy.clusters.shop.virtual.topics."metrics\..*"]
virtual_partitions = 50
physical_partitions = 5
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rookery.errors import ApiError, ConfigError
from rookery.model.virtual import DEFAULT_OFFSET_RANGE, PartitionLayout, PartitionRemapper
from rookery.service.namepattern import NamePattern

_REMEMBERED: Final = 10_000
_SIZES: Final = ("virtual_partitions", "physical_partitions", "offset_range")
_CHOICES: Final = ("layout", "untagged")


class UntaggedPolicy(Enum):
    """How batches without a tag are treated, which were not written through the proxy."""

    REJECT = "reject"
    """The partition is refused from the first such batch on."""
    SLOT_0 = "slot 0"
    """They belong to the first slot."""
    QUARANTINE = "quarantine"
    """They belong to no virtual partition."""


class TopicRule(NamedTuple):
    """The partitions of a virtual topic."""

    remapper: PartitionRemapper
    untagged: UntaggedPolicy
    is_default: bool
    """Whether only the default matches the topic."""


class VirtualRules:
    """The rules of one virtual cluster."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        """Read the table; an empty one names no topic.

        Raises:
            ConfigError: a key is unknown, or a value cannot be used.
        """
        _check_keys(table, (*_SIZES, *_CHOICES, "topics"), "virtual")
        topics = table.get("topics", {})
        if not isinstance(topics, Mapping):
            raise ConfigError("must be a table of topics", name="virtual.topics")
        self._default = None
        if not topics or any(name in table for name in _SIZES[:2]):
            self._default = _rule(table, "virtual", is_default=True) if table else None
        defaults = {name: table[name] for name in (*_SIZES, *_CHOICES) if name in table}
        self._exact: dict[str, TopicRule] = {}
        self._patterns: list[tuple[NamePattern, TopicRule]] = []
        for key, own in topics.items():
            where = f'virtual.topics."{key}"'
            if not isinstance(own, Mapping):
                raise ConfigError("must be a table", name=where)
            _check_keys(own, (*_SIZES, *_CHOICES), where)
            rule = _rule({**defaults, **own}, where, is_default=False)
            self._exact[key] = rule
            try:
                self._patterns.append((NamePattern(key), rule))
            except ApiError as error:
                raise ConfigError(str(error), name=where) from error
        self.find = lru_cache(_REMEMBERED)(self._find)
        """Return the rule for a topic's name; None if it has no virtual partitions."""

    @property
    def max_slots(self) -> int:
        """The most virtual partitions of any physical one."""
        rules = [*self._exact.values(), *([self._default] if self._default else [])]
        return max((rule.remapper.slots for rule in rules), default=0)

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return self.max_slots > 0

    def _find(self, name: str) -> TopicRule | None:
        if name.startswith("__"):
            # Kafka's own topics.
            return None
        exact = self._exact.get(name)
        if exact is not None:
            return exact
        return next(
            (rule for pattern, rule in self._patterns if pattern.matches(name)), self._default
        )


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(
                f"there is no such key; known are {', '.join(known)}", name=f"{where}.{key}"
            )


def _rule(table: Mapping[str, Any], where: str, *, is_default: bool) -> TopicRule:
    sizes: dict[str, int] = {}
    for name in _SIZES:
        value = table.get(name, DEFAULT_OFFSET_RANGE if name == "offset_range" else None)
        if value is None:
            raise ConfigError("is missing", name=f"{where}.{name}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{value!r} is not a whole number", name=f"{where}.{name}")
        sizes[name] = value
    layout = _choose(PartitionLayout, table, "layout", where)
    untagged = _choose(UntaggedPolicy, table, "untagged", where)
    try:
        remapper = PartitionRemapper(**sizes, layout=layout)
    except ConfigError as error:
        raise ConfigError(str(error), name=where) from error
    return TopicRule(remapper, untagged, is_default)


def _choose(kind: type[Any], table: Mapping[str, Any], name: str, where: str) -> Any:
    choices = {each.value: each for each in kind}
    value = table.get(name, next(iter(choices)))
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{value!r} is not one of {', '.join(choices)}", name=f"{where}.{name}")
    return choices[value]
