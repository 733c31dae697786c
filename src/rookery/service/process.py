"""The life cycle of one server process: serve until asked to stop, then drain and exit.

    start ──► ready ──► a signal, or the server failed ──► drain ──► close ──► exit code

A second signal ends the process immediately. A server must survive that, like any crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Final, Protocol

from rookery.service.interpreter import tune_interpreter
from rookery.service.memory import manage_memory

log = logging.getLogger(__name__)

OK: Final = 0
FAILED: Final = 1
BAD_SETTING: Final = 2
# As in Kafka, whose JVM shuts down cleanly after each of these.
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Time for the steps after the drain: the last entry, the last sync.
_CLOSE_SECONDS: Final = 0.8
_ABANDON_SECONDS: Final = 3.0
# A slow start reports what it waits for, first after this time and then at this interval.
_FIRST_REPORT_SECONDS: Final = 3.0
_REPORT_SECONDS: Final = 15.0


class Service(Protocol):
    """Something that is started, serves, and is stopped."""

    failed: asyncio.Future[None]
    """Gets an exception when the server cannot continue."""

    async def start(self) -> None:
        """Start to serve; if it is cancelled, `abandon` follows."""

    def waits_for(self) -> str:
        """Return what a start under way waits for."""

    async def stop(self) -> None:
        """Drain, then close everything."""

    async def abandon(self) -> None:
        """Close everything that a failed or cancelled start has opened."""


class Server(Service, Protocol):
    """The server of a process."""

    name: str
    """For log lines: "the broker cannot continue"."""


class StopRequest:
    """A request to stop this process, from a signal or from code."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.when_hung_up: Callable[[], None] | None = None
        """Called for SIGHUP, which then does not stop the process. Set it before `on_signals`."""
        self._loop = asyncio.get_running_loop()

    def on_signals(self) -> None:
        """Stop at the usual signals; the second one ends the process immediately."""
        for number in SIGNALS:
            if number == signal.SIGHUP and self.when_hung_up is not None:
                self._loop.add_signal_handler(number, self._on_hangup)
                continue
            # `nohup` makes the process ignore the end of its terminal.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._on_signal, number)

    def _on_hangup(self) -> None:
        if self.when_hung_up is not None and not self.wanted.is_set():
            self.when_hung_up()

    def _on_signal(self, number: signal.Signals) -> None:
        if self.wanted.is_set():
            log.warning("stopping at once, after a second signal", extra={"signal": number.name})
            os._exit(FAILED)
        log.info("stopping", extra={"signal": number.name})
        self.wanted.set()


async def run_server(
    server: Server, stop: StopRequest, when_ready: Callable[[], None], drain_ms: int
) -> int:
    """Run a server until it is asked to stop or fails; return the exit code.

    Args:
        server: not started yet.
        stop: signals are connected to it here; before this, they have their default effect.
        when_ready: called once the server is started.
        drain_ms: the maximum drain time of `Server.stop`.

    Raises:
        Exception: the start failed; everything it had opened is closed.
    """
    stop.on_signals()
    try:
        if not await _start(server, stop):
            await _abandon(server)
            return OK
    except BaseException:
        await _abandon(server)
        raise
    tune_interpreter()
    async with manage_memory():
        when_ready()
        code = await _run(server, stop)
        return max(code, await _stop(server, drain_ms / 1000 + _CLOSE_SECONDS))


async def _start(server: Server, stop: StopRequest) -> bool:
    """Start a server; return False if it was asked to stop before it was ready."""
    start = asyncio.create_task(server.start())
    report = asyncio.create_task(_report_start(server))
    stopped = asyncio.create_task(stop.wanted.wait())
    try:
        await asyncio.wait({start, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            await start
        return start.done()
    finally:
        for task in (start, report, stopped):
            task.cancel()
        await asyncio.gather(start, report, stopped, return_exceptions=True)


async def _report_start(server: Server) -> None:
    seconds = _FIRST_REPORT_SECONDS
    while True:
        await asyncio.sleep(seconds)
        log.warning("still starting: %s", server.waits_for(), extra={"server": server.name})
        seconds = _REPORT_SECONDS


async def _run(server: Server, stop: StopRequest) -> int:
    server.failed.add_done_callback(lambda _: stop.wanted.set())
    await stop.wanted.wait()
    if not server.failed.done():
        return OK
    error = server.failed.exception()
    log.error(
        "the %s cannot continue: %s",
        server.name,
        error,
        extra={"server": server.name, "error": str(error)},
    )
    return FAILED


async def _abandon(server: Server) -> None:
    # An open port could keep the loop from closing.
    try:
        async with asyncio.timeout(_ABANDON_SECONDS):
            await server.abandon()
    except TimeoutError:
        log.critical(
            "could not close what the start had opened; ending all the same",
            extra={"server": server.name, "duration_ms": int(_ABANDON_SECONDS * 1000)},
        )
        os._exit(FAILED)


async def _stop(server: Server, seconds: float) -> int:
    """Stop cleanly within a time limit: a hanging disk must not block the process forever."""
    try:
        async with asyncio.timeout(seconds):
            await server.stop()
    except TimeoutError:
        log.critical(
            "could not stop in order within %.1f s; ending all the same",
            seconds,
            extra={"server": server.name, "duration_ms": int(seconds * 1000)},
        )
        # Do not return: the loop would wait for the hanging thread.
        os._exit(FAILED)
    log.info("stopped", extra={"server": server.name})
    return OK
