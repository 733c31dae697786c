"""What a coordinator must know of the keys that it coordinates: the port `KeySubject`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rookery.broker.coordination.machine import Effect, Event, Persist
from rookery.broker.coordination.seats import Key, M, Seat
from rookery.wire.message import Message


class KeyClaim(Protocol):
    """Who coordinates a key, as the cluster log says."""

    @property
    def version(self) -> int:
        """The number of persists that count so far."""

    def is_led_by(self, incarnation: int, epoch: int) -> bool:
        """Whether an incarnation holds the claim, in this epoch."""


class KeySubject(Protocol[Key, M]):
    """How keys are claimed, found, loaded and persisted in the cluster log.

    `apply` must append a key to `Applied.claims_changed` when its claim changes or it is removed.
    """

    def is_ours(self, key: Key) -> bool:
        """Whether this broker is the one to claim a key, as far as the log is applied here."""

    def find(self, key: Key) -> KeyClaim | None:
        """Return the claim of a key; None if there is no such key."""

    def claim(self, key: Key) -> Message:
        """Return the event that claims a key; the value of its outcome is the claim's epoch."""

    def load(self, key: Key, now_ms: int) -> M:
        """Return the machine of a key as it was persisted; a new one if there is no such key."""

    def on(self, key: Key, machine: M, event: Event, now_ms: int) -> tuple[M, list[Effect]]:
        """Give an event to a machine; return the key's machine from now on, and the effects."""

    def events(self, seat: Seat[Key, M], machine: M, persists: Sequence[Persist]) -> list[Message]:
        """Return the events that persist a machine, whose last outcome is the new version.

        The machine is the one that asked for the last persist; the seat may have another by now.
        """

    def report(self, key: Key, problem: str, error: Exception) -> None:
        """Log a failure, with the key."""
