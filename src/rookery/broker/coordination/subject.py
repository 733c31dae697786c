"""The port `KeySubject`: defines how a coordinator handles its keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rookery.broker.coordination.machine import Effect, Event, Persist
from rookery.broker.coordination.seats import Key, M, Seat
from rookery.wire.message import Message


class KeyClaim(Protocol):
    """The claim on a key, as recorded in the cluster log."""

    @property
    def version(self) -> int:
        """The number of accepted persists so far."""

    def is_led_by(self, incarnation: int, epoch: int) -> bool:
        """Return whether an incarnation holds the claim in this epoch."""


class KeySubject(Protocol[Key, M]):
    """How keys are claimed, found, loaded and persisted in the cluster log.

    `apply` must append a key to `EntryOutcome.claims_changed` when its claim changes, and when the
    key is removed.
    """

    def is_ours(self, key: Key) -> bool:
        """Return whether this broker must claim the key, according to the state applied here."""

    def find(self, key: Key) -> KeyClaim | None:
        """Return the claim of a key; None if the key does not exist."""

    def claim(self, key: Key) -> Message:
        """Return the event that claims a key; the value of its outcome is the claim's epoch."""

    def load(self, key: Key, now_ms: int) -> M:
        """Return the persisted machine of a key; a new one if the key does not exist."""

    def on(self, key: Key, machine: M, event: Event, now_ms: int) -> tuple[M, list[Effect]]:
        """Pass an event to a machine; return the key's machine afterwards, and the effects."""

    def events(self, seat: Seat[Key, M], machine: M, persists: Sequence[Persist]) -> list[Message]:
        """Return the events that persist a machine; the last outcome is the new version.

        The machine is the one that requested the last persist; the seat may have another by now.
        """

    def report(self, key: Key, problem: str, error: Exception) -> None:
        """Log a failure with its key."""
