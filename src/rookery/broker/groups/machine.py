"""What a group is to the broker: a machine that can be listed, and may guard offsets."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol, runtime_checkable

from rookery.broker.coordination.machine import Machine
from rookery.errors import ErrorCode


class GroupMachine(Machine, Protocol):
    """One group of any kind."""

    @property
    def kind(self) -> str:
        """The name of its `GroupKind`."""

    @property
    def state_name(self) -> str:
        """The group's state in Kafka's words, such as Empty or PreparingRebalance."""

    @property
    def protocol_type(self) -> str:
        """The protocol type that ListGroups shows; empty if no member has named one."""

    @property
    def epoch(self) -> int:
        """The number of the last generation or epoch; 0 before the first."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""


@runtime_checkable
class CommitGate(Protocol):
    """A group whose members commit offsets."""

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool = False,
        version: int = 9,
    ) -> ErrorCode:
        """Say whether a member may commit offsets; -1 and "" are a client without membership.

        The version is that of OffsetCommit, which members of new groups must be able to read.
        """

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Say whether a member may see offsets; None and -1 are a client without membership."""

    def subscribes(self, topic: str) -> bool:
        """Whether a member reads the topic: its offsets are in use."""


def gate_of(machine: Any) -> CommitGate | None:
    """Return a machine as the guard of its group's offsets; None if members commit none."""
    # mypy does not see that a class is hashable.
    return machine if _is_gate(type(machine)) else None  # type: ignore[arg-type]


@cache
def _is_gate(machine: type) -> bool:
    # A microsecond, and 25 for `isinstance` of a protocol: too much for every commit.
    return issubclass(machine, CommitGate)
