"""Plans a cut of a request: the lists to cut, and the sources of the predicate's values.

A plan is computed once for each API, version and choice of kinds, from `Api.items` and the fields'
marks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from rookery.wire.items import Items, Level, levels
from rookery.wire.message import Api, FieldKind, Message
from rookery.wire.neighbour import KindByNeighbour
from rookery.wire.table import shape_of

# The request, then one element of each list on the way to an item.
Chain = tuple[Any, ...]
Decision = Callable[[Chain], bool]


class ValueSource(NamedTuple):
    """Where on a chain the value of a kind is found."""

    kind: FieldKind
    place: int
    """The structure with the field; for an element of a plain list, that element."""
    field: str | None
    mark: FieldKind | KindByNeighbour | None

    def read(self, chain: Chain) -> Any:
        """Return the value, or None if the field is of another kind here."""
        owner = chain[self.place - (self.field is None)]
        value = chain[self.place] if self.field is None else getattr(owner, self.field)
        if isinstance(self.mark, KindByNeighbour):
            return self.mark.read(owner, value, self.kind)
        return value


class CutPath(NamedTuple):
    """One list to cut, as deep as the cut goes, and where the predicate's values come from."""

    items: Items
    levels: tuple[Level, ...]
    sources: tuple[ValueSource | None, ...]

    def keeps(self, keep: Callable[..., bool]) -> Decision:
        """Return the predicate over chains that a predicate over values amounts to."""
        if not self.sources:
            return lambda chain: keep(*chain[1:])
        sources = self.sources
        return lambda chain: keep(
            *[None if source is None else source.read(chain) for source in sources]
        )


class CutPlan(NamedTuple):
    """How to cut the requests of one API and version by some kinds."""

    paths: tuple[CutPath, ...]
    whole: CutPath | None
    """Set where the values are all in the request itself, so that it cannot be cut, only kept."""


@cache
def plan_cut(api: Api[Any, Any], version: int, kinds: tuple[FieldKind, ...]) -> CutPlan:
    """Find the lists of a version that name something of these kinds; all lists for no kinds."""
    fields = api.request.__fields__
    paths = [
        _path(api.request, items, version, kinds)
        for items in api.items
        if fields[levels(items.asked)[0].name].is_in(version)
    ]
    if kinds:
        paths = [path for path in paths if path.sources != (None,) * len(kinds)]
    whole = next((path for path in paths if not path.levels), None)
    return CutPlan(tuple(paths), whole)


def _path(
    request: type[Message], items: Items, version: int, kinds: tuple[FieldKind, ...]
) -> CutPath:
    steps = levels(items.asked)
    sources = tuple(_source(request, steps, version, kind) for kind in kinds)
    depth = max((source.place for source in sources if source), default=0)
    return CutPath(items, steps[:depth] if kinds else steps, sources)


def _source(
    request: type[Message], steps: Sequence[Level], version: int, kind: FieldKind
) -> ValueSource | None:
    """Find the innermost field of a kind on the way to the items."""
    owner, innermost = request, _field(request, 0, version, kind)
    for place, step in enumerate(steps, start=1):
        shape = shape_of(owner, owner.__fields__[step.name])
        if shape.message is None:
            return ValueSource(kind, place, None, shape.mark) if kind in shape.kinds else innermost
        owner = shape.message
        innermost = _field(owner, place, version, kind) or innermost
    return innermost


def _field(owner: type[Message], place: int, version: int, kind: FieldKind) -> ValueSource | None:
    for name, entry in owner.__fields__.items():
        shape = shape_of(owner, entry)
        if kind in shape.kinds and not shape.is_array and entry.is_in(version):
            return ValueSource(kind, place, name, shape.mark)
    return None
