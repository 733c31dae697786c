"""A start that waits for a store which does not answer: what it reports, and how it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress

import pytest

from rookery.broker import broker
from rookery.broker.serve import BrokerInfo, serve
from rookery.broker.settings import BrokerSettings
from rookery.service import process
from rookery.service.process import OK, StopRequest
from rookery.testing.ports import free_port
from rookery.testing.wait import PATIENCE_SECONDS


def settings() -> BrokerSettings:
    endpoint = f"http://127.0.0.1:{free_port()}"
    store = f"s3://bucket?endpoint={endpoint}&region=r&access_key_id=a&secret_access_key=b"
    return BrokerSettings(store=store, listen="127.0.0.1:0", http_listen="")


def never_ready(_: BrokerInfo) -> None:
    pytest.fail("there is no store")


async def test_start_reports_the_dependency_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_FIRST_REPORT_SECONDS", 0.1)
    monkeypatch.setattr(process, "_REPORT_SECONDS", 0.1)
    monkeypatch.setattr(broker, "_WAIT_MS", 1)
    caplog.set_level(logging.INFO)
    stop = StopRequest()
    serving = asyncio.create_task(serve(settings(), stop, never_ready))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "Connection refused" not in caplog.text:  # noqa: ASYNC110 (a log has no event)
            await asyncio.sleep(0.01)
    stop.wanted.set()
    assert await asyncio.wait_for(serving, PATIENCE_SECONDS) == OK
    assert "still starting: store s3://bucket: no answer to list" in caplog.text


async def test_the_first_signal_ends_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()
    start = broker.Broker.start

    async def begin(self: broker.Broker) -> None:
        begun.set()
        await start(self)

    monkeypatch.setattr(broker.Broker, "start", begin)
    serving = asyncio.create_task(serve(settings(), StopRequest(), never_ready))
    await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(serving, PATIENCE_SECONDS) == OK
    for number in process.SIGNALS:
        with suppress(ValueError):
            asyncio.get_running_loop().remove_signal_handler(number)
