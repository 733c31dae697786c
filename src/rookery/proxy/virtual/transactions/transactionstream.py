"""One transactional producer's batches in one physical partition, renumbered into one sequence.

Kafka checks the sequences of a producer in each physical partition. Clients number each virtual
partition on its own, so batches get new sequences here, in the order in which they come.

    waiting ──► sent ──► stored           stored: the log has the batch, with its tag and sequence
       ▲         │
       └─ lost ◄─┘                        lost: the client repeats it under the same sequence

Another instance may have written under the same sequences, and Kafka would then take a batch for a
duplicate of another one, acknowledge it and drop it. So an acknowledgement counts only if the log
has the batch, and only after all batches before it were found there. Then the log has this stream's
batches and no others. Otherwise the stream fails: its producer must abort the transaction.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Coroutine, Hashable
from enum import Enum
from typing import Any, Final, NamedTuple

from rookery.errors import ApiError, ErrorCode

_WINDOW: Final = 5
"""Batches that Kafka recognises when they come again."""
_SEQUENCES: Final = 2**31
_MAX_STREAMS: Final = 100_000
_RETRIED: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""Clients repeat a batch after this one."""


class BatchState(Enum):
    """Where a batch is."""

    WAITING = "waiting"
    SENT = "sent"
    LOST = "lost"
    STORED = "stored"


class BatchOutcome(NamedTuple):
    """The outcome of a batch."""

    code: ErrorCode
    offset: int = -1
    """Its virtual offset."""
    reason: str = ""
    is_out_of_order: bool = False
    """Whether Kafka misses a batch before it."""

    @property
    def is_lost(self) -> bool:
        """Whether the client repeats the batch."""
        return self.code.retriable


FAILED: Final = BatchOutcome(
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    reason="the proxy does not know which batches of this transaction the partition has; abort it",
)


class StreamBatch:
    """One batch of the stream."""

    __slots__ = ("count", "first", "outcome", "sending", "sequence", "slot", "state", "verdict")

    def __init__(self, slot: int, first: int, count: int, sequence: int) -> None:
        self.slot = slot
        self.first = first
        """The client's sequence."""
        self.count = count
        self.sequence = sequence
        """In the log."""
        self.state = BatchState.WAITING
        self.verdict: BatchOutcome | None = None
        """Its outcome, until that counts."""
        self.outcome: asyncio.Future[BatchOutcome] = asyncio.get_running_loop().create_future()
        """What the client gets as the answer."""
        self.sending: Any = None
        """How to send it."""

    def end(self, verdict: BatchOutcome, state: BatchState) -> None:
        """Report the outcome of the batch to the client."""
        self.state, self.verdict, self.sending = state, None, None
        if not self.outcome.done():
            self.outcome.set_result(verdict)

    def begin_again(self) -> None:
        """Prepare to send a lost batch again."""
        self.state = BatchState.WAITING
        self.outcome = asyncio.get_running_loop().create_future()


class SlotHistory:
    """The last batches of one virtual partition."""

    __slots__ = ("batches", "is_behind", "next")

    def __init__(self) -> None:
        self.next = 0
        """The client's next sequence."""
        self.batches: deque[StreamBatch] = deque(maxlen=_WINDOW)
        self.is_behind = False
        """Whether the next batch was refused and comes again, so that later ones must wait."""

    def find(self, first: int, count: int) -> StreamBatch | None:
        """Return a batch that has come before."""
        return next(
            (each for each in self.batches if (each.first, each.count) == (first, count)), None
        )


class TransactionStream:
    """The batches of one producer and epoch in one physical partition."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.has_failed = False
        self.connection: Any = None
        """The connection that the batches in flight were sent on."""
        self._next = 0
        self._slots: dict[int, SlotHistory] = {}
        self._open: list[StreamBatch] = []
        """The batches that are not stored yet, by their sequences."""

    @property
    def is_sending(self) -> bool:
        """Whether any batch is in flight."""
        return any(each.state is BatchState.SENT for each in self._open)

    def rank(self, slot: int, first: int, count: int) -> int:
        """Return where a batch belongs among those that come together."""
        history = self._slots.get(slot)
        known = None if history is None else history.find(first, count)
        return _SEQUENCES if known is None else known.sequence

    def admit(self, slot: int, first: int, count: int) -> StreamBatch:
        """Return a batch that a client has sent: a new one, or the same as before.

        Raises:
            ApiError: it is refused; the client repeats it if the code says so.
        """
        if self.has_failed:
            raise ApiError(FAILED.code, FAILED.reason)
        history = self._slots.setdefault(slot, SlotHistory())
        known = history.find(first, count)
        if known is not None:
            if known.state is BatchState.LOST:
                self._admit_again(known)
            return known
        if first != history.next:
            is_retried = history.is_behind
            raise ApiError(_RETRIED if is_retried else FAILED.code, "an earlier batch is missing")
        if any(each.state is BatchState.LOST for each in self._open):
            history.is_behind = True
            raise ApiError(_RETRIED, "an earlier batch of the producer was lost")
        batch = StreamBatch(slot, first, count, self._next)
        history.is_behind = False
        history.next = (first + count) % _SEQUENCES
        history.batches.append(batch)
        self._next = (self._next + count) % _SEQUENCES
        self._open.append(batch)
        return batch

    def take_ready(self) -> list[StreamBatch]:
        """Return the batches that can be sent now; they count as sent."""
        ready = [each for each in self._open[:_WINDOW] if each.state is BatchState.WAITING]
        for batch in ready:
            batch.state = BatchState.SENT
        return ready

    def judge(self, batch: StreamBatch, verdict: BatchOutcome) -> None:
        """Record the outcome of a batch in flight, and report it to the client once it counts."""
        if self.has_failed:
            batch.end(FAILED, BatchState.LOST)
            return
        batch.verdict = verdict
        while self._open and (judged := self._open[0].verdict) is not None:
            if not judged.is_lost and judged.code:
                self._fail(self._open[0], judged)
                return
            if judged.is_lost:
                self._lose(self._open[0], judged)
                break
            self._open.pop(0).end(judged, BatchState.STORED)
        self._follow_lost()

    def give_up(self, batches: list[StreamBatch]) -> None:
        """Record that batches that were ready could not be sent."""
        for batch in batches:
            self.judge(batch, BatchOutcome(_RETRIED))

    def withdraw(self, batch: StreamBatch) -> None:
        """Drop a batch that waits: its client does not, and may end the transaction."""
        if batch.state is BatchState.WAITING and batch in self._open:
            self._drop_waiting(self._open.index(batch))

    def _admit_again(self, batch: StreamBatch) -> None:
        """Send a lost batch again, if its turn has come.

        Raises:
            ApiError: not yet.
        """
        at = self._open.index(batch)
        is_first = not any(each.state is BatchState.LOST for each in self._open[:at])
        is_draining = any(each.state is not BatchState.LOST for each in self._open[at:])
        if not is_first or is_draining:
            raise ApiError(_RETRIED, "an earlier batch of the producer was lost")
        batch.begin_again()

    def _lose(self, batch: StreamBatch, verdict: BatchOutcome) -> None:
        """Let the client repeat a batch, and all that wait after it."""
        batch.end(verdict, BatchState.LOST)
        self._drop_waiting(1)

    def _drop_waiting(self, left: int) -> None:
        """Drop batches that were never sent, and their numbers, from a place on."""
        while len(self._open) > left and self._open[-1].state is BatchState.WAITING:
            waiting = self._open.pop()
            history = self._slots[waiting.slot]
            history.batches.remove(waiting)
            history.next, history.is_behind = waiting.first, True
            self._next = waiting.sequence
            waiting.end(BatchOutcome(_RETRIED), BatchState.LOST)

    def _follow_lost(self) -> None:
        """Count the batches in flight after a lost one as lost, when their outcomes arrive."""
        if not any(each.state is BatchState.LOST for each in self._open[:1]):
            return
        for batch in self._open[1:]:
            verdict = batch.verdict
            if verdict is None:
                continue
            if verdict.code and not verdict.is_lost and not verdict.is_out_of_order:
                self._fail(batch, verdict)
                return
            batch.end(BatchOutcome(_RETRIED), BatchState.LOST)

    def _fail(self, batch: StreamBatch, verdict: BatchOutcome) -> None:
        """Refuse everything from now on.

        Batches in flight are answered to the client after the broker has answered: a client that
        ended its transaction before would find them appended after its end.
        """
        self.has_failed = True
        batch.end(verdict, BatchState.LOST)
        for each in self._open:
            if each.verdict is not None or each.state is not BatchState.SENT:
                each.end(FAILED, BatchState.LOST)
        self._open.clear()
        self._slots.clear()


class TransactionStreams:
    """The streams of all clients of a process, those used last."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Hashable, TransactionStream] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, key: Hashable, epoch: int) -> TransactionStream:
        """Return the stream of a producer in a physical partition.

        Raises:
            ApiError: the producer is fenced.
        """
        stream = self._streams.get(key)
        if stream is not None and stream.epoch > epoch:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if stream is None or stream.epoch < epoch:
            stream = self._streams[key] = TransactionStream(epoch)
        self._streams.move_to_end(key)
        if len(self._streams) > _MAX_STREAMS:
            self._streams.popitem(last=False)
        return stream

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, even if the client disconnects."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
