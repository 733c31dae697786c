"""Passes events to machines and carries out their effects.

    event ──► machine.on ──► no Persist: replies
                        └──► Persist: replies once it is applied

Persists of requests that arrive together share a proposal. The seat is busy while the proposal is
in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic

from rookery.broker.coordination.machine import ClientGone, Effect, Event, MachineRequest, Reply
from rookery.broker.coordination.seats import EventBatch, HeldRequest, Key, M, Seat, WaitingWork
from rookery.broker.coordination.subject import KeySubject
from rookery.broker.coordination.timer import DeadlineTimer
from rookery.cluster.replica import Replica
from rookery.cluster.state.outcome import Outcome
from rookery.errors import ErrorCode


class Driver(Generic[Key, M]):
    """Drives the machines of all seats."""

    def __init__(
        self,
        replica: Replica,
        subject: KeySubject[Key, M],
        timer: DeadlineTimer[Key],
        drop: Callable[[Seat[Key, M], ErrorCode], None],
    ) -> None:
        """Drive nothing yet.

        Args:
            replica: receives the proposals of persists.
            subject: defines how machines are driven and persisted.
            timer: receives the machines' deadlines.
            drop: drops a seat; its requests are refused with the code.
        """
        self._replica = replica
        self._subject = subject
        self._timer = timer
        self._drop = drop

    def give(self, seat: Seat[Key, M], event: Event) -> None:
        """Pass an event to the machine, and carry out the effects."""
        assert seat.machine is not None  # noqa: S101 (no seat is free without one)
        if isinstance(event, MachineRequest):
            seat.held[event.token] = None
        try:
            seat.machine, effects = self._subject.on(
                seat.key, seat.machine, event, self._timer.now_ms()
            )
            self._carry_out(seat, seat.machine, effects)
        except Exception as error:  # noqa: BLE001 (one key's fault must not stop the others)
            self.fail(seat, error)

    def lose(self, seat: Seat[Key, M], held: HeldRequest) -> None:
        """Report to the machine that the client of a held request has disconnected."""
        # The machine no longer holds a response that waits for its persist.
        if not seat.takes_events or seat.batch is not None:
            seat.waiting.append(
                WaitingWork(partial(self._lose, held), _refuse_nothing, is_event=True)
            )
        else:
            self._lose(held, seat)

    def schedule(self, seat: Seat[Key, M]) -> None:
        """Set the timer to the machine's deadline."""
        if seat.machine is not None and seat.epoch and not seat.is_dropped:
            self._timer.set(seat.key, seat.machine.deadline_ms)

    def fail(self, seat: Seat[Key, M], error: Exception) -> None:
        """Drop a seat; the next request loads the persisted state."""
        self._subject.report(seat.key, "cannot be coordinated", error)
        self._drop(seat, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _carry_out(self, seat: Seat[Key, M], machine: M, effects: list[Effect]) -> None:
        if seat.batch is None:
            replies = [effect for effect in effects if isinstance(effect, Reply)]
            if len(replies) == len(effects):
                _reply(seat, replies)
                self.schedule(seat)
                return
            seat.batch = EventBatch(machine)
            # Other events of this loop iteration, and waiting ones, share the proposal.
            asyncio.get_running_loop().call_soon(self._persist, seat)
        seat.batch.add(machine, effects)

    def _persist(self, seat: Seat[Key, M]) -> None:
        """Propose the persists of a batch."""
        batch, seat.batch = seat.batch, None
        if batch is None:  # the seat was dropped
            return
        seat.is_busy = True
        try:
            events = self._subject.events(seat, batch.machine, batch.persists)
            future = self._replica.propose_all(events)
        except Exception as error:  # noqa: BLE001 (one key's fault must not stop the others)
            self.fail(seat, error)
            return
        future.add_done_callback(partial(self._on_persisted, seat, batch.replies))

    def _on_persisted(
        self, seat: Seat[Key, M], replies: list[Reply], done: asyncio.Future[list[Outcome]]
    ) -> None:
        """Send the replies if the new state was accepted; otherwise drop the seat."""
        is_known = not done.cancelled() and done.exception() is None
        if seat.is_dropped:
            return
        if not is_known or any(outcome.error is not ErrorCode.NONE for outcome in done.result()):
            self._drop(seat, ErrorCode.NOT_COORDINATOR)
            return
        seat.version = done.result()[-1].value
        seat.is_busy = False
        _reply(seat, replies)
        self.schedule(seat)
        seat.go_on()

    def _lose(self, held: HeldRequest, seat: Seat[Key, M]) -> None:
        if held in seat.held:
            self.give(seat, ClientGone(held))
            seat.held.pop(held, None)


def _reply(seat: Seat[Key, M], replies: list[Reply]) -> None:
    for held, response in replies:
        seat.held.pop(held, None)
        held.answer(response)


def _refuse_nothing(_code: ErrorCode) -> None:
    """Do nothing: the client has disconnected."""
