"""The choice of the event loop."""

from __future__ import annotations

import asyncio
import sys

import pytest
import uvloop

from rookery.net.loop import run_loop


async def _which() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_uvloop_is_used_where_it_is_installed() -> None:
    assert isinstance(run_loop(_which()), uvloop.Loop)


def test_standard_loop_is_used_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert not isinstance(run_loop(_which()), uvloop.Loop)
