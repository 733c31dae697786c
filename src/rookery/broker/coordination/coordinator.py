"""Coordinates the keys that this broker has claimed; `KeySubject` defines what a key is.

    request ──► seat free? ──no──► waits: the key is being claimed, or a persist is on its way
                   │ yes
                   └──► the driver gives it to the machine

A key is claimed on its first request. It is dropped when another broker claims it, or when the
brokers of the cluster change and another one must claim it. Waiting clients are then sent to the
new coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Generic, TypeVar

from rookery.broker.coordination.driver import Driver
from rookery.broker.coordination.machine import MachineRequest, Tick
from rookery.broker.coordination.seats import HeldRequest, Key, M, Seat, WaitingWork
from rookery.broker.coordination.subject import KeyClaim, KeySubject
from rookery.broker.coordination.timer import DeadlineTimer
from rookery.clock import Clock
from rookery.cluster.entry import Entry
from rookery.cluster.replica import Replica
from rookery.cluster.state.outcome import EntryOutcome
from rookery.errors import ApiError, ErrorCode
from rookery.service.looppace import LoopPace
from rookery.wire.message import Message

T = TypeVar("T")
Answer = Message | asyncio.Future[Message | None]


class Coordinator(Generic[Key, M]):
    """The keys that one broker coordinates."""

    def __init__(self, replica: Replica, clock: Clock, subject: KeySubject[Key, M]) -> None:
        self._replica = replica
        self._clock = clock
        self._subject = subject
        self._seats: dict[Key, Seat[Key, M]] = {}
        self.timer: DeadlineTimer[Key] = DeadlineTimer(clock, self._tick)
        self._driver = Driver(replica, subject, self.timer, self._drop)
        self._brokers: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self.may_lack_claims = True
        """Whether keys may have lost their coordinator since the last run of the claiming task."""
        replica.listen(self._on_applied)

    def __len__(self) -> int:
        return len(self._seats)

    def __contains__(self, key: Key) -> bool:
        return key in self._seats

    # Called by handlers.

    def is_ours(self, key: Key) -> bool:
        """Return whether this broker must claim the key, according to the state applied here."""
        return self._subject.is_ours(key)

    def find_running(self, key: Key) -> M | None:
        """Return the machine of a key if it runs here."""
        seat = self._seats.get(key)
        return None if seat is None else seat.machine

    def ask(
        self,
        key: Key,
        request: MachineRequest,
        when_lost: Callable[[Callable[[], None]], Callable[[], None]],
        *,
        creates: bool = False,
    ) -> Answer:
        """Pass a request to a key's machine; return the response, or a future of it.

        Args:
            key: selects the machine.
            request: its token is a `HeldRequest`.
            when_lost: registers a callback for a disconnect of the client, and returns its undo.
            creates: whether the request can create the key.
        """
        held: HeldRequest = request.token
        seat = self._seats.get(key)
        if seat is not None and seat.takes_events:
            self._driver.give(seat, request)
        else:
            give = partial(self._driver.give, event=request)
            self._line_up(key, WaitingWork(give, held.refuse, is_event=True), creates=creates)
        if held.response is not None:
            return held.response
        return held.wait(when_lost, partial(self._abandon, key, held))

    def run(
        self, key: Key, work: Callable[[Seat[Key, M]], T], *, creates: bool = False
    ) -> asyncio.Future[T]:
        """Run some work with exclusive access to a key.

        The future fails with ApiError if the key cannot be claimed, or with the exception that the
        work raises.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def do(seat: Seat[Key, M]) -> None:
            try:
                result = work(seat)
            except Exception as error:  # noqa: BLE001 (the caller handles it; others wait in line)
                if not future.done():
                    future.set_exception(error)
                return
            if not future.done():
                future.set_result(result)

        def refuse(code: ErrorCode) -> None:
            if not future.done():
                future.set_exception(ApiError(code))

        seat = self._seats.get(key)
        if seat is not None and seat.takes_events and seat.batch is None:
            do(seat)
        else:
            self._line_up(key, WaitingWork(do, refuse), creates=creates)
        return future

    def drop_all(self) -> None:
        """Drop all keys until they are claimed again: other brokers may have changed them."""
        self.may_lack_claims = True
        for seat in list(self._seats.values()):
            self._drop(seat, ErrorCode.NOT_COORDINATOR)

    def stop(self) -> None:
        """Drop all keys and send their clients to other brokers."""
        self._is_stopping = True
        self.drop_all()
        self.timer.stop()

    # Claims.

    def _line_up(self, key: Key, waiting: WaitingWork[Key, M], *, creates: bool) -> None:
        if self._is_stopping:
            waiting.refuse(ErrorCode.NOT_COORDINATOR)
            return
        seat = self._seats.get(key)
        if seat is None:
            seat = self._seats[key] = Seat(key, self._subject.report)
            self._begin(self._load(seat))
        seat.creates = seat.creates or creates
        seat.waiting.append(waiting)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, seat: Seat[Key, M]) -> None:
        """Claim a key and build its machine, then serve the waiting requests."""
        try:
            await self._replica.barrier()
            if seat.is_dropped:
                return
            self._check_ours(seat.key)
            if seat.creates or self._subject.find(seat.key) is not None:
                await self._claim(seat)
            else:
                # A new machine refuses the requests. It is discarded afterwards.
                del self._seats[seat.key]
            seat.machine = self._subject.load(seat.key, self.timer.now_ms())
        except ApiError as error:
            self._drop(seat, error.code)
        except Exception as error:  # noqa: BLE001 (a task's root: waiting requests need an answer)
            self._driver.fail(seat, error)
        if not seat.is_dropped:
            seat.is_busy = False
            self._driver.schedule(seat)
            seat.go_on()

    def _check_ours(self, key: Key) -> None:
        if not self._subject.is_ours(key):
            raise ApiError(ErrorCode.NOT_COORDINATOR)

    async def _claim(self, seat: Seat[Key, M]) -> None:
        """Claim the key in the cluster log."""
        [outcome] = await self._replica.propose([self._subject.claim(seat.key)])
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error)
        seat.epoch = outcome.value
        claim = self._find_claim(seat)
        if claim is None:  # another broker has claimed it in the meantime
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        seat.version = claim.version

    def _find_claim(self, seat: Seat[Key, M]) -> KeyClaim | None:
        """Return the claim of a seat if this broker still holds it."""
        claim = self._subject.find(seat.key)
        if claim is None or not claim.is_led_by(self._replica.incarnation, seat.epoch):
            return None
        return claim

    def _on_applied(self, applied: EntryOutcome, _entry: Entry) -> None:
        """Drop keys that were removed or claimed by another broker."""
        for key in applied.claims_changed:
            seat = self._seats.get(key)
            if seat is not None and seat.machine is not None and self._find_claim(seat) is None:
                self._drop(seat, ErrorCode.NOT_COORDINATOR)
        brokers = [broker.incarnation for broker in self._replica.state.brokers.by_node.values()]
        # Our own incarnation is known only after the entry that created it.
        brokers.append(self._replica.incarnation)
        if brokers != self._brokers:
            self._brokers = brokers
            self.may_lack_claims = True
            if self._seats:
                self._begin(self._drop_moved())

    async def _drop_moved(self) -> None:
        pace = LoopPace(self._clock)
        for seat in list(self._seats.values()):
            await pace.step()
            is_loaded = seat.machine is not None
            if is_loaded and (self._find_claim(seat) is None or not self.is_ours(seat.key)):
                self._drop(seat, ErrorCode.NOT_COORDINATOR)

    def _drop(self, seat: Seat[Key, M], code: ErrorCode) -> None:
        self.may_lack_claims = True
        if self._seats.get(seat.key) is seat:
            del self._seats[seat.key]
            self.timer.set(seat.key, None)
        seat.drop(code)

    # Events without a request.

    def _abandon(self, key: Key, held: HeldRequest) -> None:
        held.abandon()
        seat = self._seats.get(key)
        if seat is not None:
            self._driver.lose(seat, held)

    def _tick(self, key: Key) -> None:
        seat = self._seats.get(key)
        # A busy seat is scheduled when it becomes free.
        if seat is not None and not seat.is_busy:
            self._driver.give(seat, Tick())
