"""A service with HTTP: the order of start and stop, and the pages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from rookery.errors import ConfigError, Unavailable
from rookery.net.httptext import HttpRequest, Response, as_text
from rookery.service.health import ServerHealth
from rookery.service.server import MonitoredServer


class RecordedService:
    """Notes what is asked of it, and whether HTTP answers meanwhile."""

    def __init__(self, error: Exception | None = None) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.server: MonitoredServer | None = None
        self.seen: list[tuple[str, int]] = []
        self._error = error

    async def start(self) -> None:
        await self._note("start")
        if self._error is not None:
            raise self._error

    def waits_for(self) -> str:
        return "a port"

    async def stop(self) -> None:
        await self._note("stop")

    async def abandon(self) -> None:
        self.seen.append(("abandon", 0))

    async def _note(self, name: str) -> None:
        assert self.server is not None
        self.seen.append((name, await ask(self.server, "/health/ready")))


async def ask(server: MonitoredServer, path: str) -> int:
    """Return the status of an answer; 0 if there is no HTTP."""
    if server.http is None:
        return 0
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{server.http.port}{path}")
    return answer.status_code


def make(
    service: RecordedService, listen: str = "127.0.0.1:0", token_file: str = ""
) -> MonitoredServer:
    async def page(request: HttpRequest) -> Response:
        return as_text("topics")

    service.server = MonitoredServer(
        service, ServerHealth("console", service), listen, {"/topics": page}, token_file=token_file
    )
    return service.server


async def test_http_answers_before_the_service_starts_and_while_it_stops() -> None:
    service = RecordedService()
    server = make(service)

    await server.start()
    paths = ("/health/ready", "/metrics", "/topics", "/nothing")
    statuses = [await ask(server, path) for path in paths]
    await server.stop()

    assert service.seen == [("start", 503), ("stop", 200)]
    assert statuses == [200, 200, 200, 404]
    with pytest.raises(httpx.ConnectError):
        await ask(server, "/health/live")


async def test_start_that_fails_leaves_no_port_open() -> None:
    service = RecordedService(Unavailable("no broker"))
    server = make(service)

    with pytest.raises(Unavailable):
        await server.start()
    await server.abandon()

    assert service.seen == [("start", 503), ("abandon", 0)]
    with pytest.raises(httpx.ConnectError):
        await ask(server, "/health/live")


async def test_without_an_address_there_is_no_http() -> None:
    service = RecordedService()
    server = make(service, "")

    await server.start()
    await server.stop()

    assert service.seen == [("start", 0), ("stop", 0)]


async def test_invalid_address_is_refused_before_the_service_starts() -> None:
    service = RecordedService()

    with pytest.raises(ConfigError, match="http_listen"):
        await make(service, "nowhere").start()

    assert service.seen == []


async def test_pages_need_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    service = RecordedService()
    server = make(service, token_file=str(file))
    await server.start()
    assert server.http is not None
    url = f"http://127.0.0.1:{server.http.port}/metrics"

    async with httpx.AsyncClient() as client:
        answers = [
            await client.get(url, headers=headers)
            for headers in (
                {},
                {"Authorization": "Bearer 0123456789abcdee"},
                {"Authorization": "Bearer 0123456789abcdef"},
            )
        ]
    await server.stop()

    assert [answer.status_code for answer in answers] == [401, 401, 200]
    assert answers[0].headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("content", [None, "", "short\n"])
async def test_unusable_tokens_are_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    service = RecordedService()
    server = make(service, token_file=str(file))

    with pytest.raises(ConfigError, match="http_token_file"):
        await server.start()
