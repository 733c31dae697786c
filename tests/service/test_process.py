"""The life of a server process: start, ready, stop, and failures in each stage."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rookery.errors import Unavailable
from rookery.service import process
from rookery.service.process import FAILED, OK, SIGNALS, StopRequest, run_server
from rookery.testing.virtualtime import run_virtually
from rookery.testing.wait import PATIENCE_SECONDS, wait_until_async


class FakeServer:
    """Notes what is asked of it; its start can wait or fail."""

    name = "server"

    def __init__(self, *, error: Exception | None = None, hangs: bool = False) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls: list[str] = []
        self._error = error
        self._hangs = hangs

    async def start(self) -> None:
        self.calls.append("start")
        if self._error is not None:
            raise self._error
        if self._hangs:
            await asyncio.Event().wait()

    def waits_for(self) -> str:
        return "a store"

    async def stop(self) -> None:
        self.calls.append("stop")

    async def abandon(self) -> None:
        self.calls.append("abandon")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Undo what `tune_interpreter` does to this process, and the signal handlers."""
    thresholds, seconds = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    sys.setswitchinterval(seconds)


def _restore_signals() -> None:
    for number in SIGNALS:
        with suppress(ValueError):
            asyncio.get_running_loop().remove_signal_handler(number)


async def run(server: FakeServer, stop: StopRequest) -> int:
    def ready() -> None:
        server.calls.append("ready")

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await run_server(server, stop, ready, drain_ms=100)
    finally:
        _restore_signals()


@pytest.mark.parametrize("number", SIGNALS)
async def test_first_signal_stops_the_server_in_order(number: signal.Signals) -> None:
    server, stop = FakeServer(), StopRequest()
    running = asyncio.create_task(run(server, stop))
    await wait_until_async(lambda: "ready" in server.calls)

    os.kill(os.getpid(), number)

    assert await running == OK
    assert server.calls == ["start", "ready", "stop"]


async def test_failed_server_is_stopped_with_an_exit_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, stop = FakeServer(), StopRequest()
    running = asyncio.create_task(run(server, stop))
    await wait_until_async(lambda: "ready" in server.calls)

    server.failed.set_exception(Unavailable("the disk is gone"))

    assert await running == FAILED
    assert server.calls == ["start", "ready", "stop"]
    assert "the server cannot continue: the disk is gone" in caplog.text


async def test_start_that_fails_is_abandoned() -> None:
    server = FakeServer(error=Unavailable("no store"))

    with pytest.raises(Unavailable, match="no store"):
        await run(server, StopRequest())

    assert server.calls == ["start", "abandon"]


async def test_start_that_waits_is_reported_and_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_FIRST_REPORT_SECONDS", 0.001)
    server, stop = FakeServer(hangs=True), StopRequest()
    running = asyncio.create_task(run(server, stop))
    await wait_until_async(lambda: "still starting: a store" in caplog.text)

    stop.wanted.set()

    assert await running == OK
    assert server.calls == ["start", "abandon"]


def test_slow_start_is_reported_after_three_seconds_and_every_fifteen() -> None:
    reported: list[float] = []

    class SlowServer(FakeServer):
        def waits_for(self) -> str:
            reported.append(asyncio.get_running_loop().time())
            return super().waits_for()

    async def start() -> None:
        stop = StopRequest()
        asyncio.get_running_loop().call_later(40, stop.wanted.set)
        assert await run(SlowServer(hangs=True), stop) == OK

    run_virtually(start())

    assert reported == pytest.approx([3, 18, 33], abs=0.1)


async def test_signal_that_is_ignored_stays_ignored(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopRequest()
        stop.on_signals()

        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        _restore_signals()
        signal.signal(signal.SIGHUP, before)
