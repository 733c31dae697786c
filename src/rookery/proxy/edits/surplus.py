"""Finds what a response names and its request did not ask for: topics, partitions, groups.

The lists that belong together are declared with each API's messages (`Api.items`). Lists without
such names, and responses that are deeper than their requests, are not checked. `fetchscope` checks
the later responses of fetch sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from rookery.errors import ProtocolError
from rookery.wire.items import Items, Level, levels
from rookery.wire.message import (
    Api,
    CoordinatorKey,
    GroupId,
    Message,
    PartitionId,
    TopicId,
    TopicName,
    TransactionalId,
    kind_of,
)
from rookery.wire.table import shape_of

_KINDS: Final = frozenset(
    map(kind_of, (TopicName, TopicId, PartitionId, GroupId, TransactionalId, CoordinatorKey))
)
# An epoch from which on a request of a fetch session does not name all its partitions.
_INCREMENTAL: Final = 1

AskedTree = dict[object, Any]
"""What a list names, and for each name the tree of its inner list; `_ALL` for everything."""
_ALL: Final = object()


class AnsweredList(NamedTuple):
    """A list of a response, and the lists of the request that it answers."""

    steps: tuple[Level, ...]
    asked: tuple[tuple[Items, tuple[Level, ...]], ...]


def check_surplus(api: Api[Any, Any], version: int, request: Message, response: Message) -> None:
    """Refuse a response with something that its request did not ask for.

    Raises:
        ProtocolError: it has such a thing.
    """
    surplus = find_surplus(api, version, request, response)
    if surplus is not None:
        raise ProtocolError(surplus)


def find_surplus(
    api: Api[Any, Any], version: int, request: Message, response: Message
) -> str | None:
    """Return a description of what a response has and its request did not ask for.

    Returns:
        None if there is nothing of the sort.
    """
    answered = _plan(api, version)
    if not answered or is_incremental(request):
        return None
    for each in answered:
        tree: Any = {}
        for items, steps in each.asked:
            if tree is not _ALL:
                tree = _add(tree, request, steps, items, version)
        if tree is _ALL:
            continue
        element = _search(response, each.steps, tree)
        if element is not None:
            return f"{api.name}: the response has {element}, which was not asked for"
    return None


@cache
def _plan(api: Api[Any, Any], version: int) -> tuple[AnsweredList, ...]:
    """Return the lists of a version that can be checked."""
    fields = api.request.__fields__
    lists: dict[str, list[tuple[Items, tuple[Level, ...]]]] = {}
    for items in api.items:
        if items.answered is None or not _is_checked(api.response, levels(items.answered)):
            continue
        steps = levels(items.asked)
        if not fields[steps[0].name].is_in(version):
            continue
        if len(steps) != len(levels(items.answered)):
            return ()
        lists.setdefault(items.answered, []).append((items, steps))
    return tuple(AnsweredList(levels(name), tuple(asked)) for name, asked in lists.items())


def _is_checked(owner: type[Message], steps: Sequence[Level]) -> bool:
    """Return whether names of the kinds above identify the elements of a list, at all depths."""
    for step in steps:
        element = shape_of(owner, owner.__fields__[step.name]).message
        if element is None or not step.keys:
            return False
        for key in step.keys:
            if shape_of(element, element.__fields__[key]).mark not in _KINDS:
                return False
        owner = element
    return True


def is_incremental(request: Any) -> bool:
    """Return whether the request belongs to a session whose partitions it does not repeat."""
    if hasattr(request, "share_session_epoch"):
        return True
    epoch: int = getattr(request, "session_epoch", 0)
    return epoch >= _INCREMENTAL


def _add(
    tree: AskedTree, owner: Message, steps: Sequence[Level], items: Items, version: int
) -> Any:
    """Add what a list names to a tree; return the tree, or `_ALL`."""
    step, rest = steps[0], steps[1:]
    elements = getattr(owner, step.name)
    if elements is None or (not elements and version in items.all_if_empty):
        return _ALL
    if not rest and not step.is_any:
        tree.update(dict.fromkeys(_names(elements, step), _ALL))
        return tree
    for element in elements:
        keys = _keys(element, step)
        inner: Any = next((tree[key] for key in keys if key in tree), None)
        if not rest:
            inner = _ALL
        elif inner is not _ALL:
            inner = _add(inner or {}, element, rest, items, version)
        for key in keys:
            tree[key] = inner
    return tree


def _search(owner: Message, steps: Sequence[Level], tree: AskedTree) -> str | None:
    """Return the name of the first element that is not in a tree."""
    step, rest = steps[0], steps[1:]
    elements = getattr(owner, step.name) or ()
    if not rest and not step.is_any and tree.keys() >= set(_names(elements, step)):
        # The usual case, many times faster than the loop.
        return None
    for element in elements:
        keys = _keys(element, step)
        inner = next((tree[key] for key in keys if key in tree), None)
        if inner is None:
            if not keys:
                continue
            return _describe(element, step)
        if inner is not _ALL:
            name = _search(element, rest, inner)
            if name is not None:
                return f"{name} of {_describe(element, step)}"
    return None


def _names(elements: Iterable[Any], step: Level) -> Iterable[Any]:
    """Return the names of elements that have one field with a name, or are names."""
    return map(attrgetter(*step.keys), elements) if step.keys else elements


def _keys(element: Any, step: Level) -> list[object]:
    """Return what an element can be found by, in a request and in its response."""
    if step.is_any:
        return [value for _, value in step.keys_of(element)]
    return list(_names((element,), step))


def _describe(element: Any, step: Level) -> str:
    values = {key: getattr(element, key) for key in step.keys}
    return ", ".join(
        f"{key} {value.hex() if isinstance(value, bytes) else value}"
        for key, value in values.items()
    )
