"""Worker processes under one supervisor: started, restarted when they die, stopped together.

The supervisor writes a worker's orders as a line of JSON to its standard input. The worker writes a
line of JSON to its standard output when it is ready. Later lines of input change what the worker
does, and each is answered by a line of output. The input stays open: when it closes, the supervisor
is gone, and the worker stops. `service.worker` is the worker's side.
"""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from rookery.clock import Clock, SystemClock
from rookery.service.process import BAD_SETTING, FAILED, OK, StopRequest

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
# After this lifetime a worker that dies is restarted after the first pause again.
_HEALTHY_MS: Final = 30_000
# The time beyond the drain: the worker's own time for closing, and some more.
_GRACE_SECONDS: Final = 1.5
# For later orders, which may have to wait for what the worker depends on.
_REPLY_SECONDS: Final = 120.0

Orders = Mapping[str, object]
"""The orders of a worker, as JSON: its settings."""
Report = dict[str, Any]
"""The report of a worker that is ready, from JSON."""
Reply = dict[str, Any]
"""A worker's reply to later orders: an `error`, empty if they are in effect, and its `name`."""
OrdersOf = Callable[[Report | None], Orders]
"""Returns a worker's orders for its next start, given the report of an earlier one."""


_ACCEPTED: Final[Reply] = {"error": "", "name": ""}


class _Worker:
    """One worker, across restarts."""

    def __init__(self, number: int, orders_of: OrdersOf) -> None:
        self.number = number
        self.orders_of = orders_of
        """Returns the orders of the next start."""
        self.report: Report | None = None
        self.process: Process | None = None
        self.pause = _FIRST_PAUSE
        self.is_ready = False
        """Whether the process that runs now has reported that it is ready."""
        self._replies: deque[asyncio.Future[Reply]] = deque()

    async def ask(self, message: Mapping[str, object]) -> Reply:
        """Write a later line of input; return the reply, one without an error if there is none."""
        process = self.process
        if process is None or process.stdin is None or not self.is_ready:
            return _ACCEPTED
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies.append(reply)
        with suppress(ConnectionError):
            process.stdin.write(json.dumps(message).encode() + b"\n")
            await process.stdin.drain()
        try:
            return await asyncio.wait_for(reply, _REPLY_SECONDS)
        except TimeoutError:
            problem = f"worker {self.number} has not replied within {_REPLY_SECONDS:.0f} s"
            return {"error": problem, "name": ""}

    def on_reply(self, reply: Reply) -> None:
        """Settle the oldest question, whose asker may have given up."""
        if self._replies:
            future = self._replies.popleft()
            if not future.done():
                future.set_result(reply)

    def on_end(self) -> None:
        """Settle all questions: the process is gone, and the next one begins with the orders."""
        self.is_ready = False
        while self._replies:
            self.on_reply(_ACCEPTED)

    def orders(self) -> bytes:
        """Return the first line of input for a new process."""
        orders = {"number": self.number, "orders": dict(self.orders_of(self.report))}
        return json.dumps(orders).encode() + b"\n"


class Supervisor:
    """Keeps worker processes alive."""

    def __init__(
        self,
        command: Sequence[str],
        workers: Sequence[OrdersOf],
        drain_ms: int,
        when_ready: Callable[[list[Report]], None],
        clock: Clock | None = None,
    ) -> None:
        """Prepare to start the workers; `run` does it.

        Args:
            command: starts a worker.
            workers: one function per worker, which returns its orders.
            drain_ms: the maximum drain time of a worker.
            when_ready: called once, when all workers are ready for the first time.
            clock: measures the lifetime of a worker.
        """
        self._command = command
        self._workers = [_Worker(index + 1, orders_of) for index, orders_of in enumerate(workers)]
        self._stop_seconds = drain_ms / 1000 + _GRACE_SECONDS
        self._when_ready = when_ready
        self._clock = clock or SystemClock()
        self._code = OK
        self._is_announced = False
        self._catching_up: set[asyncio.Task[Reply]] = set()

    async def run(self, stop: StopRequest) -> int:
        """Keep the workers alive until they are asked to stop; return the exit code."""
        lives = [asyncio.create_task(self._keep(worker, stop)) for worker in self._workers]
        await stop.wanted.wait()
        for worker in self._workers:
            _signal(worker.process)
        _, late = await asyncio.wait(lives, timeout=self._stop_seconds)
        if late:
            log.error(
                "%d workers did not stop within %.1f s; killing them",
                len(late),
                self._stop_seconds,
                extra={"duration_ms": int(self._stop_seconds * 1000)},
            )
            self._code = self._code or FAILED
            for worker in self._workers:
                _signal(worker.process, kill=True)
        await asyncio.gather(*lives)
        return self._code

    @property
    def starting(self) -> int:
        """The number of workers that run and are not ready yet."""
        return sum(
            worker.process is not None and worker.process.returncode is None and not worker.is_ready
            for worker in self._workers
        )

    async def change(self, workers: Sequence[OrdersOf]) -> Reply:
        """Give new orders to all workers, one after the other; a refusal takes back all of them.

        Args:
            workers: one function per worker, which returns its orders.

        Returns:
            The reply of the worker that refused, or a reply without an error.
        """
        changed: list[tuple[_Worker, OrdersOf]] = []
        for worker, orders_of in zip(self._workers, workers, strict=True):
            before = worker.orders_of
            worker.orders_of = orders_of
            changed.append((worker, before))
            reply = await worker.ask({"orders": dict(orders_of(worker.report))})
            if reply["error"]:
                changed.pop()
                worker.orders_of = before
                for other, previous in changed:
                    other.orders_of = previous
                    await other.ask({"orders": dict(previous(other.report))})
                return reply
        return _ACCEPTED

    async def tell(self, message: Mapping[str, object]) -> None:
        """Write a line of input to all workers that run, and wait for their replies."""
        await asyncio.gather(*(worker.ask(message) for worker in self._workers))

    async def _keep(self, worker: _Worker, stop: StopRequest) -> None:
        """Run a worker, and restart it when it dies."""
        while not stop.wanted.is_set():
            began_ms = self._clock.monotonic_ms()
            code = await self._live(worker, stop)
            if stop.wanted.is_set():
                self._code = self._code or (FAILED if code else OK)
                return
            if worker.report is None:
                # It was never ready: another attempt would fail in the same way.
                self._code = code if code in {FAILED, BAD_SETTING} else FAILED
                stop.wanted.set()
                return
            if self._clock.monotonic_ms() - began_ms > _HEALTHY_MS:
                worker.pause = _FIRST_PAUSE
            log.error(
                "worker %d died and is restarted in %.1f s",
                worker.number,
                worker.pause,
                extra={
                    "worker": worker.number,
                    "pause_ms": int(worker.pause * 1000),
                    "error": _death(code),
                },
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wanted.wait(), worker.pause)
            worker.pause = min(worker.pause * 2, _LONGEST_PAUSE)

    async def _live(self, worker: _Worker, stop: StopRequest) -> int:
        """Run a worker once; return its exit code."""
        process = worker.process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            # In its own session: a keyboard interrupt is meant for the supervisor, which passes it
            # on.
            start_new_session=True,
        )
        if process.stdin is None or process.stdout is None:  # pragma: no cover (both are pipes)
            raise RuntimeError("a worker without pipes")
        if stop.wanted.is_set():
            _signal(process)
        begun_with = worker.orders_of
        with suppress(ConnectionError):
            process.stdin.write(worker.orders())
            await process.stdin.drain()
        line = await process.stdout.readline()
        if line:
            self._ready(worker, json.loads(line))
        replies = asyncio.create_task(self._read_replies(worker, process.stdout, begun_with))
        code = await process.wait()
        worker.on_end()
        replies.cancel()
        await asyncio.gather(replies, return_exceptions=True)
        process.stdin.close()
        return code

    async def _read_replies(
        self, worker: _Worker, output: asyncio.StreamReader, begun_with: OrdersOf
    ) -> None:
        if worker.orders_of is not begun_with:
            # They have changed while the worker started.
            orders = {"orders": dict(worker.orders_of(worker.report))}
            task = asyncio.create_task(worker.ask(orders))
            self._catching_up.add(task)
            task.add_done_callback(self._catching_up.discard)
        while line := await output.readline():
            worker.on_reply(json.loads(line))

    def _ready(self, worker: _Worker, report: Report) -> None:
        worker.report = report
        worker.is_ready = True
        reports = [other.report for other in self._workers if other.report is not None]
        if len(reports) == len(self._workers) and not self._is_announced:
            self._is_announced = True
            self._when_ready(reports)


def _death(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _signal(process: Process | None, *, kill: bool = False) -> None:
    if process is None or process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.kill() if kill else process.terminate()
