"""The description of a kind of group: a row of the table in `kindtable.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from rookery.broker.coordination.machine import Effect, Event, MachineRequest, Persist
from rookery.broker.groups.machine import GroupMachine
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import ErrorCode
from rookery.wire.message import Api

GM = TypeVar("GM", bound=GroupMachine)

Step: TypeAlias = tuple[GroupMachine, list[Effect]]
"""A group's machine after an event, and the effects of the event."""


def _no_configs(_group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The user settings for groups."""

    classic: ClassicSettings = field(default_factory=ClassicSettings)
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    configs: Callable[[str], Mapping[str, str]] = _no_configs
    """Returns the settings of one group, by Kafka's names."""


class StoredGroup(NamedTuple):
    """A group as its last coordinator persisted it."""

    group_id: str
    body: bytes
    """The whole state."""
    changes: Sequence[bytes] = ()
    """The changes persisted since then, by `Persist.change`."""


@dataclass(frozen=True, slots=True)
class GroupKind(Generic[GM]):
    """One kind of group; its machines have the same name as `kind`."""

    name: str
    """The name in the persisted state and in Kafka's ListGroups."""
    joined_by: Api[Any, Any]
    """The API by which clients create and join such a group."""
    answers: tuple[Api[Any, Any], ...]
    """The APIs that its machines answer; they include `joined_by`."""
    new: Callable[[str, GroupSettings, int], GM]
    """Returns a group without members, by id and settings; its epochs start after the given one."""
    load: Callable[[StoredGroup, GroupSettings, int], GM]
    """Returns a persisted group; the timeouts of its members start at the given time.

    It raises Corrupt if the body is not of this kind.
    """
    on: Callable[[GM, Event, GroupSettings, int], Step] | None = None
    """Passes an event to a machine, which can change its kind; None: `Machine.on`."""
    succeeds: frozenset[str] = frozenset()
    """The kinds whose groups can become groups of this kind when a client joins by `joined_by`."""
    upgrade: Callable[[Any, MachineRequest, GroupSettings, int], Step] | None = None
    """Admits such a client to a group with members of a kind that this one succeeds."""
    mismatch: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND
    """The error for `joined_by` if the group is of another kind and cannot change it."""
    is_initial: bool = False
    """Whether a group is of this kind until its first state is persisted."""


def is_persisted(effects: Sequence[Effect]) -> bool:
    """Return whether an event has changed the persisted state of a group."""
    return any(isinstance(effect, Persist) for effect in effects)
