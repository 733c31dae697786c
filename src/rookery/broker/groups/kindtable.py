"""All kinds of groups, and the choice of a group's kind by the protocol of its members.

    request ──► of an API that the group's kind answers ──► its machine
           └──► of another kind's `joined_by`: the group becomes one of that kind, or refuses

A group without members takes the kind of the next client that joins, if that kind succeeds the
group's. A group with members changes its kind only as defined by the row of the other kind. Its
numbers continue: no epoch of one protocol is ever a generation of the other.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from rookery.broker.coordination.machine import Event, MachineRequest, Reply
from rookery.broker.groups import kinds
from rookery.broker.groups.kind import GroupKind, GroupSettings, Step, StoredGroup, is_persisted
from rookery.broker.groups.machine import GroupMachine
from rookery.errors import Corrupt, ErrorCode


@cache
def group_kinds() -> tuple[GroupKind[Any], ...]:
    """Return the row of every module in `groups/kinds`."""
    names = [module.name for module in pkgutil.iter_modules(kinds.__path__)]
    return tuple(import_module(f"{kinds.__name__}.{name}").KIND for name in names)


class Kinds:
    """Creates and drives the machines of groups."""

    def __init__(
        self, settings: GroupSettings, rows: Iterable[GroupKind[Any]] | None = None
    ) -> None:
        """Index the table.

        Args:
            settings: the user settings.
            rows: the kinds of groups; None for those in the folder.
        """
        rows = group_kinds() if rows is None else tuple(rows)
        self._settings = settings
        self._by_name = {row.name: row for row in rows}
        [self._initial] = [row for row in rows if row.is_initial]
        self._joined_by = {row.joined_by.request: row for row in rows}
        self._apis = {api.request: api for row in rows for api in row.answers}
        self._answers = {row.name: frozenset(api.request for api in row.answers) for row in rows}

    def load(
        self, group_id: str, kind: str, body: bytes, now_ms: int, changes: Sequence[bytes] = ()
    ) -> GroupMachine:
        """Return a group's machine; the timeouts of its members start now.

        Args:
            group_id: the id of the group.
            kind: the name of its kind; empty for a group that was never persisted.
            body: its persisted state.
            now_ms: the current time.
            changes: the changes persisted since then, by `Persist.change`.

        Raises:
            Corrupt: the body is not one of this kind, or the kind is newer than this program.
        """
        machine: GroupMachine
        if not kind:
            machine = self._initial.new(group_id, self._settings, 0)
            return machine
        row = self._by_name.get(kind)
        if row is None:
            raise Corrupt(
                f"group {group_id!r} is of kind {kind!r}, which this broker does not know"
            )
        machine = row.load(StoredGroup(group_id, body, changes), self._settings, now_ms)
        return machine

    def on(self, group_id: str, machine: GroupMachine, event: Event, now_ms: int) -> Step:
        """Pass an event to a machine; return the group's machine afterwards, and the effects."""
        name = machine.kind
        row = self._by_name[name]
        if isinstance(event, MachineRequest):
            message = type(event.message)
            joined = self._joined_by.get(message)
            is_answered = message in self._answers[name]
            if not is_answered or (joined is not None and joined is not row and machine.is_empty):
                return self._convert(group_id, machine, event, now_ms)
        if row.on is None:
            return machine, machine.on(event, now_ms)
        return row.on(machine, event, self._settings, now_ms)

    def _convert(
        self, group_id: str, machine: GroupMachine, event: MachineRequest, now_ms: int
    ) -> Step:
        """Admit a client that uses the protocol of another kind, or refuse it."""
        row = self._joined_by.get(type(event.message))
        if row is None:
            return machine, [self._refuse(event, ErrorCode.UNKNOWN_MEMBER_ID)]
        is_successor = machine.kind in row.succeeds
        if machine.is_empty and (is_successor or not machine.epoch):
            other: GroupMachine = row.new(group_id, self._settings, machine.epoch)
            effects = other.on(event, now_ms)
            # A request that neither adds a member nor makes one wait changes nothing.
            is_taken = is_persisted(effects) or other.deadline_ms is not None
            return (other if is_taken else machine), effects
        if is_successor and row.upgrade is not None and not machine.is_empty:
            return row.upgrade(machine, event, self._settings, now_ms)
        return machine, [self._refuse(event, row.mismatch)]

    def _refuse(self, request: MachineRequest, code: ErrorCode) -> Reply:
        api = self._apis[type(request.message)]
        return Reply(request.token, api.refuse(request.message, code))
