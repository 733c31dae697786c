"""Drives the machines of the groups that this broker coordinates.

    request ──► seat free? ──no──► waits
                   │ yes
                   └──► machine.on ──► no Persist: replies
                                  └──► Persist: replies once it is applied

Persists of requests that come together share a proposal. While it is on its way the seat is busy.

A group is claimed when it is first asked for, or by `claims.py` if it has members; it is dropped
when another broker claims it: waiting clients are sent to the new coordinator. Time in which this
process did not run counts for no member, since heartbeats may wait unread meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, TypeVar

from rookery.broker.groups.deadlines import Deadlines
from rookery.broker.groups.kinds import Kinds, kind_of
from rookery.broker.groups.machine import (
    Effect,
    Event,
    Gone,
    Machine,
    Persist,
    Reply,
    Request,
    Tick,
)
from rookery.broker.groups.seats import EventBatch, Held, Seat, Waiting
from rookery.broker.groups.summary import GroupSummary, Summaries, summarize
from rookery.broker.groups.topicview import TopicView
from rookery.clock import Clock
from rookery.cluster.entry import Entry
from rookery.cluster.events.groups import GroupChanged, GroupClaimed, GroupPersisted
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import GROUP_CHANGES_LEVEL, Group, coordinator_of
from rookery.cluster.state.outcome import Applied, Outcome
from rookery.errors import ApiError, Error, ErrorCode
from rookery.service.looppace import LoopPace
from rookery.wire.message import Message

log = logging.getLogger(__name__)

T = TypeVar("T")
Answer = Message | asyncio.Future[Message | None]

# While something has a deadline, we look at the clock this often at least …
_LOOK_MS: Final = 1_000
# … so that after such a gap this process, or its machine, must have stood still.
_STANDSTILL_MS: Final = 3_000
# Groups that are given the time in one turn of the event loop.
_TICKS: Final = 25
# An entry is bounded, and others want room in it too.
_PART_BYTES: Final = 128 * 1024
# What a group's changes may take before it is kept as a whole again: twice the whole.
_MIN_CHANGES_BYTES: Final = 16 * 1024
_MAX_CHANGES_BYTES: Final = 1024 * 1024


class Coordinator:
    """The groups of one broker."""

    def __init__(self, replica: Replica, clock: Clock, kinds: Kinds) -> None:
        self._replica = replica
        self._kinds = kinds
        self.topics = TopicView(replica)
        """What machines are shown of the cluster's topics, with each request."""
        self._clock = clock
        self._seats: dict[str, Seat] = {}
        self._deadlines = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._last_ms = clock.monotonic_ms()
        self._stood_still_ms = 0
        self._brokers: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self.may_lack_claims = True
        """Whether groups with members may have no coordinator since `claims.py` looked last."""
        self._summaries = Summaries(self._decode)
        replica.listen(self._applied)

    def __len__(self) -> int:
        return len(self._seats)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._seats

    # What handlers ask for.

    def is_ours(self, group_id: str) -> bool:
        """Whether the hash chooses this broker, as far as the log is applied here."""
        brokers = self._replica.state.brokers
        own = brokers.of(self._replica.incarnation)
        return own is not None and own.node_id == coordinator_of(group_id, brokers.nodes)

    def machine(self, group: Group) -> Machine:
        """Return a group's machine to look at: the one that runs, or what its body says."""
        seat = self._seats.get(group.id)
        if seat is not None and seat.machine is not None:
            return seat.machine
        return self._decode(group)

    def summary(self, group: Group) -> GroupSummary | None:
        """Return a group's summary; None if its body cannot be decoded."""
        seat = self._seats.get(group.id)
        if seat is not None and seat.machine is not None:
            return summarize(seat.machine)
        return self._summaries.of(group, self._replica.state.groups)

    def _decode(self, group: Group) -> Machine:
        return self._kinds.load(group.id, group.kind, group.body, self.now_ms(), group.changes)

    def ask(
        self,
        group_id: str,
        request: Request,
        when_lost: Callable[[Callable[[], None]], Callable[[], None]],
        *,
        creates: bool = False,
    ) -> Answer:
        """Give a request to a group's machine; return the answer, or that it will come.

        Args:
            group_id: which group.
            request: its token is a `Held`.
            when_lost: has a callback called when the client is gone, and returns how to undo it.
            creates: whether the request may bring the group into being.
        """
        held: Held = request.token
        seat = self._seats.get(group_id)
        if seat is not None and seat.takes_events:
            self._give(seat, request)
        else:
            give = partial(self._give, event=request)
            waiting = Waiting(give, held.refuse, is_event=True)
            self._line_up(group_id, waiting, creates=creates)
        if held.response is not None:
            return held.response
        return held.wait(when_lost, partial(self._lost, group_id, held))

    def run(
        self, group_id: str, work: Callable[[Seat], T], *, creates: bool = False
    ) -> asyncio.Future[T]:
        """Do something with a group while nothing else happens to it.

        The future fails with ApiError if the group cannot be had, and with what the work raises.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def do(seat: Seat) -> None:
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

        seat = self._seats.get(group_id)
        if seat is not None and seat.takes_events and seat.batch is None:
            do(seat)
        else:
            self._line_up(group_id, Waiting(do, refuse), creates=creates)
        return future

    def drop_all(self) -> None:
        """Lead nothing any more, until it is claimed again: others may have done anything."""
        self.may_lack_claims = True
        for seat in list(self._seats.values()):
            self._drop(seat, ErrorCode.NOT_COORDINATOR)

    def stop(self) -> None:
        """Send everybody to other brokers."""
        self._is_stopping = True
        self.drop_all()
        if self._timer is not None:
            self._timer.cancel()

    # Claims.

    def _line_up(self, group_id: str, waiting: Waiting, *, creates: bool) -> None:
        if self._is_stopping:
            waiting.refuse(ErrorCode.NOT_COORDINATOR)
            return
        seat = self._seats.get(group_id)
        if seat is None:
            seat = self._seats[group_id] = Seat(group_id)
            self._begin(self._load(seat))
        seat.creates = seat.creates or creates
        seat.waiting.append(waiting)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, seat: Seat) -> None:
        """Claim a group and build its machine, then begin with those who wait."""
        try:
            await self._replica.barrier()
            self._check_ours(seat.group_id)
            if seat.creates or seat.group_id in self._replica.state.groups.by_id:
                await self._claim(seat)
            else:
                self._visit(seat)
        except ApiError as error:
            self._drop(seat, error.code)
        except Exception as error:  # noqa: BLE001 (a task's root: those who wait must be told)
            self._give_up(seat, error)
        if not seat.is_dropped:
            seat.is_busy = False
            self._schedule(seat)
            seat.go_on()

    def _give_up(self, seat: Seat, error: Exception) -> None:
        """Begin anew with what was agreed on, when somebody asks again."""
        is_expected = isinstance(error, Error)
        log.error(
            "a group cannot be coordinated: %s",
            error if is_expected else repr(error),
            exc_info=None if is_expected else error,
            extra={"group": seat.group_id},
        )
        self._drop(seat, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _check_ours(self, group_id: str) -> None:
        if not self.is_ours(group_id):
            raise ApiError(ErrorCode.NOT_COORDINATOR)

    async def _claim(self, seat: Seat) -> None:
        """Become the coordinator; what is applied decides whether we do."""
        [outcome] = await self._replica.propose([GroupClaimed(group_id=seat.group_id)])
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error)
        seat.epoch = outcome.value
        group = self._led(seat)
        if group is None:  # another one has claimed it since
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        seat.version = group.version
        seat.machine = self._decode(group)

    def _visit(self, seat: Seat) -> None:
        """Let those who ask for a group that is not there be told so, and make none for them."""
        del self._seats[seat.group_id]
        seat.machine = self._kinds.load(seat.group_id, "", b"", self.now_ms())

    def _led(self, seat: Seat) -> Group | None:
        """Find the group of a seat, if its claim still holds."""
        return self._replica.state.groups.led(seat.group_id, self._replica.incarnation, seat.epoch)

    def _applied(self, applied: Applied, _entry: Entry) -> None:
        """Drop groups that were removed, and what another broker has claimed, or should."""
        for group_id in applied.claims_changed:
            seat = self._seats.get(group_id)
            if seat is not None and seat.machine is not None and self._led(seat) is None:
                self._drop(seat, ErrorCode.NOT_COORDINATOR)
        brokers = [one.incarnation for one in self._replica.state.brokers.by_node.values()]
        # Our own incarnation is known only after the entry that made it.
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
            if is_loaded and (self._led(seat) is None or not self.is_ours(seat.group_id)):
                self._drop(seat, ErrorCode.NOT_COORDINATOR)

    def _drop(self, seat: Seat, code: ErrorCode) -> None:
        self.may_lack_claims = True
        if self._seats.get(seat.group_id) is seat:
            del self._seats[seat.group_id]
            self._deadlines.cancel(seat.group_id)
        seat.drop(code)

    # Events and effects.

    def _give(self, seat: Seat, event: Event) -> None:
        """Have the machine take an event, and carry out what it says."""
        assert seat.machine is not None  # noqa: S101 (no seat is free without one)
        if isinstance(event, Request):
            seat.held[event.token] = None
        try:
            seat.machine, effects = self._kinds.on(
                seat.group_id, seat.machine, event, self.now_ms()
            )
            self._carry_out(seat, effects)
        except Exception as error:  # noqa: BLE001 (one group's fault must not stop the others)
            self._give_up(seat, error)

    def _carry_out(self, seat: Seat, effects: list[Effect]) -> None:
        if seat.batch is None:
            if not any(isinstance(effect, Persist) for effect in effects):
                _reply(seat, [effect for effect in effects if isinstance(effect, Reply)])
                self._schedule(seat)
                return
            seat.batch = EventBatch()
            # What else comes in this turn of the loop, or waits in line, shares the proposal.
            asyncio.get_running_loop().call_soon(self._keep, seat)
        seat.batch.add(kind_of(seat.machine), effects)

    def _keep(self, seat: Seat) -> None:
        """Propose what the machine wants kept."""
        batch, seat.batch = seat.batch, None
        if batch is None:  # the seat was dropped
            return
        seat.is_busy = True
        try:
            future = self._replica.propose_all(self._events(seat, batch))
        except Exception as error:  # noqa: BLE001 (one group's fault must not stop the others)
            self._give_up(seat, error)
            return
        future.add_done_callback(partial(self._kept, seat, batch.replies))

    def _events(self, seat: Seat, batch: EventBatch) -> list[Message]:
        changes = [persist.change for persist in batch.persists]
        if not self._fit_as_changes(seat, changes):
            return _whole(seat, batch.kind, batch.persists[-1].body)
        return [
            GroupChanged(
                group_id=seat.group_id,
                epoch=seat.epoch,
                version=seat.version + place,
                change=change,
            )
            for place, change in enumerate(changes)
        ]

    def _fit_as_changes(self, seat: Seat, changes: list[bytes]) -> bool:
        """Whether changes may be kept as such: a successor reads all since the last whole."""
        state = self._replica.state
        group = state.groups.by_id.get(seat.group_id)
        if not all(changes) or group is None or state.feature_level < GROUP_CHANGES_LEVEL:
            return False
        size = sum(map(len, changes)) + sum(map(len, group.changes))
        return size <= min(max(2 * len(group.body), _MIN_CHANGES_BYTES), _MAX_CHANGES_BYTES)

    def _kept(self, seat: Seat, replies: list[Reply], done: asyncio.Future[list[Outcome]]) -> None:
        """Answer, if the new state counts; else we are not the coordinator any more."""
        is_known = not done.cancelled() and done.exception() is None
        if seat.is_dropped:
            return
        if not is_known or any(one.error is not ErrorCode.NONE for one in done.result()):
            self._drop(seat, ErrorCode.NOT_COORDINATOR)
            return
        seat.version = done.result()[-1].value
        seat.is_busy = False
        _reply(seat, replies)
        self._schedule(seat)
        seat.go_on()

    def _lost(self, group_id: str, held: Held) -> None:
        """Tell the machine that nobody waits for an answer."""
        held.abandon()
        seat = self._seats.get(group_id)
        if seat is None:
            return
        tell = Waiting(partial(self._say_gone, held), _nobody_waits, is_event=True)
        # An answer that is on its way is nothing that the machine waits with.
        if not seat.takes_events or seat.batch is not None:
            seat.waiting.append(tell)
        else:
            tell.work(seat)

    def _say_gone(self, held: Held, seat: Seat) -> None:
        if held in seat.held:
            self._give(seat, Gone(held))
            seat.held.pop(held, None)

    # Time.

    def now_ms(self) -> int:
        """Return the time that has passed for members: monotonic, without standstills."""
        real = self._clock.monotonic_ms()
        gap, self._last_ms = real - self._last_ms, real
        if gap > _STANDSTILL_MS:
            self._stood_still_ms += gap
        return real - self._stood_still_ms

    def _schedule(self, seat: Seat) -> None:
        machine = seat.machine
        if machine is None or self._seats.get(seat.group_id) is not seat:
            return
        due_ms = machine.deadline_ms
        if due_ms is None:
            self._deadlines.cancel(seat.group_id)
            return
        self._deadlines.set(seat.group_id, due_ms)
        if self._timer is None or due_ms < self._armed_ms:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._deadlines.next_ms
        if due_ms is None or self._is_stopping:
            return
        now_ms = self.now_ms()
        self._armed_ms = min(max(due_ms, now_ms), now_ms + _LOOK_MS)
        seconds = (self._armed_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Tell the machines for which something is due."""
        self._timer = None
        # The rest is due at once, after other tasks had their turn.
        for group_id in self._deadlines.take(self.now_ms(), _TICKS):
            seat = self._seats.get(group_id)
            # One that is busy is scheduled when it is not.
            if seat is not None and not seat.is_busy:
                self._give(seat, Tick())
        self._arm()


def _whole(seat: Seat, kind: str, body: bytes) -> list[Message]:
    """Return the events that keep a group's whole state, in parts that fit into entries."""
    parts = [body[at : at + _PART_BYTES] for at in range(0, len(body), _PART_BYTES)] or [b""]
    return [
        GroupPersisted(
            group_id=seat.group_id,
            epoch=seat.epoch,
            version=seat.version,
            kind=kind,
            body=part,
            is_last=number == len(parts),
        )
        for number, part in enumerate(parts, 1)
    ]


def _reply(seat: Seat, replies: list[Reply]) -> None:
    for held, response in replies:
        seat.held.pop(held, None)
        held.answer(response)


def _nobody_waits(_code: ErrorCode) -> None:
    """Refuse nothing."""
