"""Keeps the caretaker running: a child process of one broker, restarted when it dies.

The broker sends the settings as one line on the child's standard input. After every round the child
writes a report as one line on its standard output. A line with a number confirms that the broker
has read that snapshot back and agrees. The input stays open. When it closes, the broker is gone,
and the caretaker exits.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from rookery.broker.settings import BrokerSettings
from rookery.clock import loop_seconds
from rookery.errors import Error

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_GRACE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5
# A caretaker that reports nothing for this long hangs: a round rewrites a gigabyte at most.
_SILENCE_SECONDS: Final = 900.0


class CaretakerKeeper:
    """Runs the caretaker while this broker is the one that must keep it."""

    def __init__(
        self,
        settings: BrokerSettings,
        is_wanted: Callable[[], bool],
        agrees: Callable[[int], Awaitable[bool]],
    ) -> None:
        """Run nothing yet.

        Args:
            settings: passed to the child.
            is_wanted: returns whether this broker must currently keep the caretaker.
            agrees: reads back a snapshot of the child before the log is trimmed up to it.
        """
        self._settings = settings
        self._is_wanted = is_wanted
        self._agrees = agrees
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.rounds = 0
        """The number of rounds completed by caretakers of this broker."""
        self.report: dict[str, Any] = {}
        """The report of the last round."""
        self._earlier: Counter[str] = Counter()
        self._heard = 0.0
        self.deaths = 0
        """The number of caretakers that died unexpectedly."""
        self._deaths_in_a_row = 0
        self._earlier_failures = 0

    @property
    def requests(self) -> Counter[str]:
        """Requests to the store by kind, summed over all caretakers of this broker."""
        return self._earlier + Counter(self.report.get("requests", {}))

    @property
    def failures(self) -> int:
        """The number of failed maintenance tasks, summed over all caretakers of this broker."""
        return self._earlier_failures + int(self.report.get("failures", 0))

    @property
    def trouble(self) -> str:
        """A description of the current maintenance problem; empty if there is none."""
        if self._deaths_in_a_row:
            return f"the caretaker died {self._deaths_in_a_row} times without finishing a round"
        count = self.report.get("quarantined", 0)
        problems = "; ".join(self.report.get("problems", ()))
        return (
            f"maintenance skips {count} items that it cannot process: {problems}" if count else ""
        )

    def take(self, report: dict[str, Any]) -> None:
        """Store the report of a finished round."""
        self.report = report
        self.rounds += 1
        self._deaths_in_a_row = 0

    def start(self) -> None:
        """Start the task that runs a caretaker while one is wanted."""
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Stop the task and the caretaker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._dismiss()

    @property
    def pid(self) -> int | None:
        """The child's process id; None if it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            if not self._is_wanted():
                await self._dismiss()
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            rounds = self.rounds
            try:
                await self._live()
            except Exception:
                log.exception("the caretaker could not be started")
            if self._is_wanted():
                self.deaths += 1
                self._deaths_in_a_row += self.rounds == rounds
                pause = _FIRST_PAUSE if self.rounds > rounds else min(pause * 2, _LONGEST_PAUSE)
                log.error("the caretaker died and is restarted in %.1f s", pause)
                await asyncio.sleep(pause)

    async def _live(self) -> None:
        """Run the child until it exits or is no longer wanted."""
        # The next child counts from zero.
        self._earlier = self.requests
        self._earlier_failures = self.failures
        self.report = {}
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "rookery.broker.storage.caretaker",
            stdin=PIPE,
            stdout=PIPE,
            # In its own session, since a keyboard interrupt is meant for the broker, which stops
            # the child.
            start_new_session=True,
        )
        if process.stdin is None or process.stdout is None:  # pragma: no cover (both are pipes)
            raise RuntimeError("a caretaker without pipes")
        with suppress(ConnectionError):
            process.stdin.write(json.dumps(asdict(self._settings)).encode() + b"\n")
            await process.stdin.drain()
        listening = asyncio.create_task(self._listen(process.stdout, process.stdin))
        try:
            self._heard = loop_seconds()
            while not listening.done() and self._is_wanted():
                await asyncio.wait([listening], timeout=_LOOK_SECONDS)
                if loop_seconds() - self._heard > _SILENCE_SECONDS:
                    log.error("the caretaker has not reported for %.0f s", _SILENCE_SECONDS)
                    break
            await self._dismiss()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, reports: asyncio.StreamReader, orders: asyncio.StreamWriter) -> None:
        confirmed = 0
        while line := await reports.readline():
            self.take(json.loads(line))
            self._heard = loop_seconds()
            snapshot = int(self.report["snapshot"])
            if snapshot > confirmed and await self._is_confirmed(snapshot):
                confirmed = snapshot
                with suppress(ConnectionError):
                    orders.write(b"%d\n" % snapshot)

    async def _is_confirmed(self, snapshot: int) -> bool:
        """Read a snapshot back; if that fails, the next round's report triggers another attempt."""
        try:
            return await self._agrees(snapshot)
        except Error as error:
            log.warning("snapshot %d cannot be read back now: %s", snapshot, error)
            return False

    async def _dismiss(self) -> None:
        """Ask the child to exit; kill it if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
