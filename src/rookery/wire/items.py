"""Declares the lists of a request that name its items, and the response lists for them.

An API declares them with its messages, as paths from the outermost list to the innermost:

    Items(
        "topic_data(name | topic_id).partition_data(index)",
        "responses(name | topic_id).partition_responses(index)",
    )

The fields in parentheses tell the elements of a list apart. With a comma between them all must
agree; with a bar, one that is set is enough, because a client gives a topic's name or its id, and
an answer may repeat both. A list of plain values (`partitions: list[PartitionId]`) needs none. A
list in a response without them answers the request's list element by element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

# The values of a name or an id that was not given.
_UNSET = frozenset({None, "", bytes(16)})
_LEVEL = re.compile(r"(?P<name>\w+)(?:\((?P<keys>[^)]*)\))?")


class Items(NamedTuple):
    """A list of a request that can be cut, and the list of the response that answers it."""

    asked: str
    answered: str | None
    """None where the response does not mention the elements at all."""
    has_codes: bool = True
    """Whether each element of the answer has an error code; if not, a refused one is left out."""
    all_if_empty: range = range(0)
    """The versions in which an empty list asks for everything, as a null list always does."""


class Level(NamedTuple):
    """One list on a path, and the field that identifies its elements."""

    name: str
    keys: tuple[str, ...]
    is_any: bool
    """Whether one key that is set is enough."""

    def keys_of(self, element: Any) -> Iterator[tuple[int, object]]:
        """Yield what an element can be found by, the same for a request and its answer."""
        if not self.keys:
            yield 0, element
        elif self.is_any:
            for number, key in enumerate(self.keys):
                value = getattr(element, key)
                if value not in _UNSET:
                    yield number, value
        else:
            values = tuple(_hashable(getattr(element, key)) for key in self.keys)
            yield 0, values[0] if len(values) == 1 else values


@cache
def levels(path: str) -> tuple[Level, ...]:
    """Return the lists on a path, the outermost first."""
    return tuple(_level(match) for match in _LEVEL.finditer(path))


def _level(match: re.Match[str]) -> Level:
    keys = match["keys"] or ""
    return Level(match["name"], tuple(re.findall(r"\w+", keys)), "|" in keys)


def _hashable(value: Any) -> object:
    """Turn lists and structures into tuples of their values."""
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    if hasattr(value, "__fields__"):
        return tuple(_hashable(getattr(value, name)) for name in value.__fields__)
    return value
