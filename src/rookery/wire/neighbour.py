"""A mark for fields whose kind depends on neighbouring fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rookery.wire.message import FieldKind, Message, Type, kind_of

# The name in an ACL that stands for all resources of a type.
WILDCARD = "*"


class KindByNeighbour:
    """Determines a field's kind from the values of neighbouring fields.

    `resource_name` is a topic name where `resource_type` is 2, and a group id where it is 32.
    """

    __slots__ = ("decimal", "kinds", "neighbours", "wildcards")

    def __init__(
        self,
        *neighbours: str,
        kinds: Mapping[Any, object],
        wildcards: Mapping[Any, object] | None = None,
    ) -> None:
        """Name the neighbours and what follows from them.

        Args:
            neighbours: fields of the same structure.
            kinds: the marked type for each value of the neighbour, or for each tuple of values
                where there are several neighbours. A field with another value has no kind.
            wildcards: the same for a field that holds `*`, where that is not a name.
        """
        self.neighbours = neighbours
        self.kinds = _by_tuple(kinds)
        self.wildcards = _by_tuple(wildcards or {})
        self.decimal = frozenset(
            kind_of(mark)
            for mark in kinds.values()
            if Type.STRING not in getattr(mark, "__metadata__", ())
        )
        """Kinds that are numbers elsewhere: the field holds them as decimal text."""

    def values_for(self, kind: FieldKind) -> frozenset[tuple[object, ...]]:
        """Return the values of the neighbours for which the field is of `kind`."""
        return frozenset(near for near, given in self.kinds.items() if given == kind)

    def wildcards_for(self, kind: FieldKind) -> frozenset[tuple[object, ...]]:
        """Return the values of the neighbours for which a `*` is of `kind`."""
        return frozenset(near for near, given in self.wildcards.items() if given == kind)

    def read(self, owner: Message, value: Any, kind: FieldKind) -> Any:
        """Return a field's value if it is of `kind` where it stands, else None."""
        near = tuple(getattr(owner, name) for name in self.neighbours)
        known = self.wildcards if self.wildcards and value == WILDCARD else self.kinds
        if known.get(near) != kind:
            return None
        return number_in(value) if kind in self.decimal else value


def number_in(text: str | None) -> int | None:
    """Return the number that a name spells, or None if it is none (an empty name means "all")."""
    return int(text) if text and text.isascii() and text.isdecimal() else None


def _by_tuple(marks: Mapping[Any, object]) -> dict[tuple[object, ...], FieldKind]:
    return {
        near if isinstance(near, tuple) else (near,): kind_of(mark) for near, mark in marks.items()
    }
