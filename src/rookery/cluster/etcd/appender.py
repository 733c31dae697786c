"""Appends: one transaction at a time, which carries all queued entries.

A transaction means "if the head is n - 1, set it to n and store entry n". With several writers,
another writer often comes first. To avoid a second attempt, the transaction continues as a ladder:
"else, if the head is n, set it to n + 1 and store entry n + 1", and so on. The number of rungs
follows recent contention.

Every rung also requires that this handle's last append is still the previous one, and records the
new one. So a transaction takes effect at most once and can be resent when its response is lost.
The handle's key then shows which number the first copy got. An abandoned append cannot appear
after a later append of the same handle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from rookery.clock import Random
from rookery.cluster.etcd.client import EtcdAnswer, EtcdClient
from rookery.cluster.etcd.layout import (
    WRITER_BYTES,
    EtcdKeys,
    LastAppend,
    check_head,
    read_last,
    write_head,
    write_value,
)
from rookery.cluster.etcd.messages import (
    TXN,
    get,
    is_absent,
    nest,
    put,
    range_request,
    read_txn,
    txn_request,
    value_is,
)
from rookery.cluster.etcd.reader import ask_first, read_bounds
from rookery.cluster.etcd.watch import HeadWatch
from rookery.errors import Error, Unavailable

MAX_RUNGS: Final = 16
"""The maximum number of entry numbers that a transaction tries."""

# By default etcd accepts 128 operations and 1.5 MiB for all rungs together; two operations per
# rung are not entries.
_MAX_STEPS: Final = 128
_OTHER_STEPS: Final = 2
_MAX_BYTES: Final = 1 << 20
# Every rung repeats the entries, and etcd writes all of them to its own log.
_LADDER_BYTES: Final = 64 << 10


class _WaitingEntry(NamedTuple):
    """An entry and the future for its number."""

    data: bytes
    future: asyncio.Future[int]


class EtcdAppender:
    """Appends the entries of one handle to the log, in order of arrival."""

    def __init__(
        self, client: EtcdClient, layout: EtcdKeys, random: Random, watch: HeadWatch
    ) -> None:
        self._client = client
        self._layout = layout
        self._watch = watch
        self._queue: deque[_WaitingEntry] = deque()
        self._task: asyncio.Task[None] | None = None
        self._writer = layout.writer(random.token(WRITER_BYTES))
        self._turn = 0
        # The last known value of our key in etcd; empty: the key does not exist.
        self._last = b""
        self._rungs = 1

    async def append(self, data: bytes) -> int:
        """Put an entry into the next transaction; return its number."""
        waiting = _WaitingEntry(data, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._append_all())
        return await waiting.future

    async def close(self) -> None:
        """Return when all queued entries are in the log or have failed."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _append_all(self) -> None:
        while self._queue:
            batch = self._gather()
            try:
                first = await self._append([write_value(waiting.data) for waiting in batch])
            except Error as error:
                # Later entries have waited as long, and would have to wait as long again.
                _fail([*batch, *self._queue], error)
                self._queue.clear()
                return
            except BaseException:
                _fail([*batch, *self._queue], Unavailable("the event loop stops"))
                self._queue.clear()
                raise
            self._settle(batch, first)

    def _gather(self) -> list[_WaitingEntry]:
        """Take as many queued entries as fit into a transaction."""
        batch = [self._queue.popleft()]
        size = len(batch[0].data)
        while self._queue and len(batch) < _MAX_STEPS - _OTHER_STEPS:
            size += len(self._queue[0].data)
            if size > _MAX_BYTES:
                break
            batch.append(self._queue.popleft())
        return batch

    def _settle(self, batch: list[_WaitingEntry], first: int) -> None:
        for number, waiting in enumerate(batch, first):
            if not waiting.future.done():
                waiting.future.set_result(number)
        self._watch.on_moved(first + len(batch) - 1)

    async def _append(self, values: list[bytes]) -> int:
        """Retry at the log's end until the append succeeds; return the first entry's number."""
        self._turn += 1
        landed = None
        while landed is None:
            number = self._watch.head + 1
            rungs = self._affordable_rungs(values)
            answer = await self._client.call(TXN, self._ladder(number, rungs, values))
            landed = self._find_landed(number, answer)
        self._last = LastAppend(self._turn, landed).write()
        return landed

    def _affordable_rungs(self, values: list[bytes]) -> int:
        """Return the wanted number of rungs that fit; every rung holds all the values."""
        by_steps = _MAX_STEPS // (len(values) + _OTHER_STEPS)
        by_bytes = _LADDER_BYTES // max(1, sum(map(len, values)))
        return max(1, min(self._rungs, by_steps, by_bytes))

    def _ladder(self, number: int, rungs: int, values: list[bytes]) -> bytes:
        """Encode the transaction, from the last rung to the first."""
        looks = (ask_first(self._layout), range_request(self._layout.head))
        otherwise = [get(look) for look in (*looks, range_request(self._writer))]
        request = b""
        for at in reversed(range(number, number + rungs)):
            request = self._rung(at, values, otherwise)
            otherwise = [nest(request)]
        return request

    def _rung(self, number: int, values: list[bytes], otherwise: list[bytes]) -> bytes:
        head = self._layout.head
        conditions = [
            value_is(head, write_head(number - 1)) if number > 1 else is_absent(head),
            value_is(self._writer, self._last) if self._last else is_absent(self._writer),
        ]
        steps = [
            put(head, write_head(number + len(values) - 1)),
            put(self._writer, LastAppend(self._turn, number).write()),
        ]
        steps += [put(self._layout.entry(at), value) for at, value in enumerate(values, number)]
        return txn_request(conditions, steps, otherwise)

    def _find_landed(self, number: int, answer: EtcdAnswer) -> int | None:
        """Return the first entry's number; None if other writers came first on all rungs."""
        done, rung = read_txn(answer.data), 0
        while not done.succeeded and done.inner:
            done, rung = read_txn(done.inner), rung + 1
        if done.succeeded:
            self._rungs = min(MAX_RUNGS, max(self._rungs - 1, 2 * rung + 1))
            return number + rung
        first, head, writer = done.results
        bounds = read_bounds(self._layout, first, head)
        check_head(self._layout.name, bounds.head, number - 1)
        self._watch.on_moved(bounds.head)
        self._rungs = min(MAX_RUNGS, 2 * (bounds.head - number + 1) + 1)
        if not writer and answer.tries > 1 and bounds.floor >= number:
            raise self._unknown(number)
        self._last = writer[0].value if writer else b""
        return self._find_earlier()

    def _find_earlier(self) -> int | None:
        """Return the number that an earlier attempt of this append got, according to our key."""
        last = read_last(self._writer, self._last) if self._last else None
        return last.number if last and last.turn == self._turn else None

    def _unknown(self, number: int) -> Unavailable:
        return Unavailable(
            f"the answer to an append to {self._layout.name!r} was lost, and what this handle "
            f"appended has been trimmed since: read on after {number - 1} and look for the entry"
        )


def _fail(batch: list[_WaitingEntry], error: Exception) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(error)
