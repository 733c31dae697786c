"""Summaries of groups for listing and maintenance, decoded once per state of a group."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from rookery import metrics
from rookery.broker.groups.machine import GroupMachine
from rookery.cluster.state.groups import Group, Groups

log = logging.getLogger(__name__)

UNREADABLE: Final = metrics.counter(
    "rookery_groups_unreadable_total", "Stored states of groups that could not be decoded."
)
_SPARE: Final = 1_000


class GroupSummary(NamedTuple):
    """A group without its members."""

    kind: str
    state: str
    """Kafka's name of the state."""
    protocol_type: str
    is_empty: bool


class Summaries:
    """Summaries of stored groups, each valid while its group has the same body and changes."""

    def __init__(self, load: Callable[[Group], GroupMachine]) -> None:
        """Start empty.

        Args:
            load: decodes a group.
        """
        self._load = load
        self._by_id: dict[str, tuple[bytes, int, GroupSummary | None]] = {}

    def of(self, group: Group, groups: Groups) -> GroupSummary | None:
        """Return a group's summary; None if its body cannot be decoded, which is logged once."""
        known = self._by_id.get(group.id)
        if known is not None and known[0] is group.body and known[1] == len(group.changes):
            return known[2]
        summary = self._decode(group)
        self._by_id[group.id] = group.body, len(group.changes), summary
        if len(self._by_id) > 2 * len(groups.by_id) + _SPARE:
            self._by_id = {key: entry for key, entry in self._by_id.items() if key in groups.by_id}
        return summary

    def _decode(self, group: Group) -> GroupSummary | None:
        try:
            return summarize(self._load(group))
        except Exception:
            UNREADABLE.inc()
            log.exception("a group is excluded from maintenance", extra={"group": group.id})
            return None


def summarize(machine: GroupMachine) -> GroupSummary:
    """Return the summary of a decoded group."""
    return GroupSummary(machine.kind, machine.state_name, machine.protocol_type, machine.is_empty)
