"""Merges the responses to the two halves of a request, for `wire.partition.join`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from rookery.errors import ErrorCode, ProtocolError
from rookery.wire.items import Items, Level, levels
from rookery.wire.message import BrokerId, Field, Message, kind_of
from rookery.wire.table import default_of, shape_of

M = TypeVar("M", bound=Message)

_THROTTLE: Final = "throttle_time_ms"
# Taken from the same answer, so that the text belongs to the code.
_ERROR: Final = ("error_code", "error_message")
_BROKER: Final = kind_of(BrokerId)
_LAST: Final = 2**62


def merge_answers(
    items: tuple[Items, ...], request: Message, kept: Message | None, first: M, second: M
) -> M:
    """Merge the answers to the kept half of a request and to the rest of it."""
    lists: dict[str, list[Any] | None] = {}
    for answered in dict.fromkeys(entry.answered for entry in items if entry.answered):
        steps, asked = levels(answered), [e.asked for e in items if e.answered == answered]
        name = steps[0].name
        pair = getattr(first, name), getattr(second, name)
        if steps[0].keys:
            lists[name] = _merge_lists(*pair, steps, _order(request, asked, len(steps)))
        elif kept is not None:
            source = levels(asked[0])[0].name
            lists[name] = _interleave(getattr(request, source), getattr(kept, source), *pair)
    return _merge(first, second, lists)


class _Order:
    """Where the request names each element, and in which order the elements inside it."""

    def __init__(self) -> None:
        self._places: dict[object, tuple[int, _Order]] = {}

    def add(self, elements: Iterable[Any], steps: Sequence[Level]) -> None:
        """Note elements after those that are known."""
        for element in elements:
            keys = list(steps[0].keys_of(element))
            known = next((self._places[key] for key in keys if key in self._places), None)
            place = known or (len(self._places), _Order())
            self._places |= dict.fromkeys(keys, place)
            if len(steps) > 1:
                place[1].add(getattr(element, steps[1].name) or (), steps[1:])

    def find(self, element: Any, level: Level) -> tuple[int, _Order]:
        """Return an element's position and the order inside it; what is unknown comes last."""
        for key in level.keys_of(element):
            if key in self._places:
                return self._places[key]
        return _LAST, _Order()


def _order(request: Message, asked: list[str], depth: int) -> _Order | None:
    """Return the order of a request's items; None for levels that only the answer has.

    The innermost lists of request and answer belong together, whatever surrounds them.
    """
    order = _Order()
    for path in asked:
        steps = levels(path)
        if len(steps) < depth:
            return None
        elements: list[Any] = [request]
        for step in steps[: len(steps) - depth + 1]:
            elements = [inner for outer in elements for inner in getattr(outer, step.name) or ()]
        order.add(elements, steps[len(steps) - depth :])
    return order


def _merge_lists(
    first: list[Any] | None, second: list[Any] | None, steps: Sequence[Level], order: _Order | None
) -> list[Any] | None:
    if first is None or second is None:
        return first if second is None else second
    level = steps[0]
    merged = [*first, *second] if len(steps) == 1 else _group(first, second, steps, order)
    if order is not None:
        merged.sort(key=lambda element: order.find(element, level)[0])
    return merged


def _group(
    first: list[Any], second: list[Any], steps: Sequence[Level], order: _Order | None
) -> list[Any]:
    """Merge elements that both answers have, and append those that only the second has."""
    merged = list(first)
    places = {key: i for i, element in enumerate(first) for key in steps[0].keys_of(element)}
    for element in second:
        place = next((places[key] for key in steps[0].keys_of(element) if key in places), None)
        if place is None:
            merged.append(element)
            continue
        name = steps[1].name
        inner = None if order is None else order.find(element, steps[0])[1]
        pair = getattr(merged[place], name), getattr(element, name)
        merged[place] = _merge(
            merged[place], element, {name: _merge_lists(*pair, steps[1:], inner)}
        )
    return merged


def _interleave(
    asked: list[Any], kept: list[Any], first: list[Any], second: list[Any]
) -> list[Any]:
    """Give each element asked for the next answer of the half that it went to."""
    if (len(first), len(second)) != (len(kept), len(asked) - len(kept)):
        raise ProtocolError(
            f"{len(first)} and {len(second)} results came for {len(kept)} and "
            f"{len(asked) - len(kept)} elements; there must be one for each"
        )
    answers, rest, still_kept = iter(first), iter(second), iter(kept)
    merged, expected = [], next(still_kept, None)
    for element in asked:
        if element is expected:
            merged.append(next(answers))
            expected = next(still_kept, None)
        else:
            merged.append(next(rest))
    return merged


def _merge(first: M, second: M, lists: dict[str, list[Any] | None]) -> M:
    """Merge two structures whose lists of items are merged already."""
    values: dict[str, Any] = {}
    codes = [getattr(answer, _ERROR[0], ErrorCode.NONE) for answer in (first, second)]
    failed = second if codes[1] and not codes[0] else first
    for name, entry in first.__fields__.items():
        pair = getattr(first, name), getattr(second, name)
        if name in lists:
            values[name] = lists[name]
        elif name == _THROTTLE:
            values[name] = max(pair)
        elif name in _ERROR:
            values[name] = getattr(failed, name)
        else:
            values[name] = _choose(*pair, type(first), entry)
    merged = first.replace(**values)
    merged.unknown_tags = first.unknown_tags or second.unknown_tags
    return merged


def _choose(first: Any, second: Any, cls: type[Message], entry: Field) -> Any:
    """Take the union of two lists; of other values the first, unless it was left out."""
    shape = shape_of(cls, entry)
    if shape.is_array and first and second:
        known = [_identity(element) for element in first]
        return [*first, *(element for element in second if _identity(element) not in known)]
    default = entry.factory() if entry.factory else default_of(entry, shape)
    return second if first == default else first


def _identity(element: Any) -> Any:
    """Return a broker's id, where the element is about a broker, or the element itself."""
    if isinstance(element, Message):
        for name, entry in element.__fields__.items():
            if shape_of(type(element), entry).mark == _BROKER:
                return getattr(element, name)
    return element
