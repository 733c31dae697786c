"""The comparable part of an answer: its error codes, names, lists and authorized operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rookery.errors import ErrorCode
from rookery.wire.message import FieldKind, Message
from rookery.wire.messages.describe_acls import DescribeAclsResource
from rookery.wire.table import shape_of

MASKS: Final = frozenset(
    {"authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"}
)
ANOTHER_ID: Final = "another id"
"""Shown instead of an id that is not known."""
COUNTS: Final = frozenset({"num_partitions", "replication_factor"})
_NAMES: Final = frozenset({"topic name", "group id", "transactional id", "coordinator key"})
_TOPIC_ID: Final = "topic id"
# Kafka keeps offsets and transactions in topics that exist only there.
_INTERNAL: Final = "__"

Outline = Mapping[str, object]
"""Values by their place in the answer, such as `topics/known/error_code`."""


def outline(answer: Message | str, ids: Mapping[bytes, str]) -> Outline:
    """Return the outline of an answer, or of the reason why there is none.

    Args:
        answer: the answer.
        ids: what to show instead of each known id of a topic.
    """
    if isinstance(answer, str):
        return {"": answer}
    values: dict[str, object] = {}
    _collect(answer, "", ids, values)
    return values


def differing(mine: Outline, other: Outline) -> dict[str, tuple[object, object]]:
    """Return the values that differ by their place; None where an answer has none."""
    places = dict.fromkeys([*mine, *other])
    return {
        place: (mine.get(place), other.get(place))
        for place in places
        if mine.get(place) != other.get(place)
    }


def _collect(
    value: Message, place: str, ids: Mapping[bytes, str], values: dict[str, object]
) -> None:
    for name, entry in value.__fields__.items():
        held = getattr(value, name)
        kind = _kind(value, name)
        if isinstance(held, ErrorCode):
            values[place + name] = held.name
        elif kind == _TOPIC_ID and isinstance(held, bytes):
            values[place + name] = ids.get(bytes(held), ANOTHER_ID)
        elif kind in _NAMES or name in MASKS or name in COUNTS:
            values[place + name] = held
        elif isinstance(held, list) and shape_of(type(value), entry).message is not None:
            for key, element in _elements(held, ids):
                values[f"{place}{name}/{key}"] = "listed"
                _collect(element, f"{place}{name}/{key}/", ids, values)


def _elements(elements: list[Message], ids: Mapping[bytes, str]) -> list[tuple[str, Message]]:
    """Return the elements of a list with their names, or their numbers."""
    listed: dict[str, Message] = {}
    for number, element in enumerate(elements):
        key = _name(element, ids) or str(number)
        if not key.startswith(_INTERNAL):
            listed[f"{key} again" if key in listed else key] = element
    return [*listed.items()]


def _name(element: Message, ids: Mapping[bytes, str]) -> str:
    if isinstance(element, DescribeAclsResource):
        return f"{element.resource_type}-{element.pattern_type}-{element.resource_name}"
    if {"resource_type", "resource_name"} <= element.__fields__.keys():
        if element.resource_name.startswith(_INTERNAL):  # type: ignore[attr-defined] # as above
            return _INTERNAL
        return f"{element.resource_type}-{element.resource_name}"  # type: ignore[attr-defined] # above
    for name in element.__fields__:
        held: Any = getattr(element, name)
        kind = _kind(element, name)
        if kind in _NAMES and held:
            return str(held)
        if kind == _TOPIC_ID and isinstance(held, bytes) and held in ids:
            return ids[held]
    # Such as a setting.
    return str(getattr(element, "name", None) or "")


def _kind(value: Message, name: str) -> str:
    shape = shape_of(type(value), value.__fields__[name])
    return shape.mark.name if isinstance(shape.mark, FieldKind) and not shape.is_array else ""
