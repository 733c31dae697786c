"""Health and metrics over HTTP: reasons, warnings, and what is asked before the answer."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from rookery.net.http import Checks
from rookery.net.httptext import Request, Response
from rookery.service.health import HealthEndpoints, serve_http


class Source:
    """A server whose problems the test sets."""

    name = "proxy"

    def __init__(self) -> None:
        self.live = self.ready = self.warning = ""
        self.calls: list[str] = []

    def waits_for(self) -> str:
        return "an upstream"

    def live_checks(self) -> Checks:
        return {"proxy": lambda: self.live}

    def ready_checks(self) -> Checks:
        return {"upstream": lambda: self.ready, "draining": lambda: ""}

    def warnings(self) -> Checks:
        return {"certificate": lambda: self.warning}

    async def probe(self) -> None:
        self.calls.append("probe")

    async def refresh(self) -> None:
        self.calls.append("refresh")


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def endpoints(source: Source) -> HealthEndpoints:
    made = HealthEndpoints(source)
    made.is_started = True
    return made


async def get(endpoints: HealthEndpoints, path: str) -> Response:
    return await endpoints.routes()[path](Request("GET", path))


async def test_server_that_starts_is_alive_but_not_ready(source: Source) -> None:
    endpoints = HealthEndpoints(source)

    ready, live = await get(endpoints, "/health/ready"), await get(endpoints, "/health/live")

    assert (ready.status, live.status) == (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.OK)
    assert json.loads(ready.body)["problems"] == {
        "start": "the proxy is still starting: an upstream"
    }
    assert source.calls == []


async def test_readiness_probes_dependencies_and_gives_reasons(
    source: Source, endpoints: HealthEndpoints
) -> None:
    well = await get(endpoints, "/health/ready")
    source.ready = "no answer for 5 s"
    ill = await get(endpoints, "/health/ready")

    assert (well.status, ill.status) == (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE)
    assert json.loads(ill.body)["problems"] == {"upstream": "no answer for 5 s"}
    assert source.calls == ["probe", "probe"]


async def test_warning_keeps_no_client_away(source: Source, endpoints: HealthEndpoints) -> None:
    source.warning = "it expires tomorrow"

    answer = await get(endpoints, "/health/ready")

    assert answer.status is HTTPStatus.OK
    assert json.loads(answer.body)["warnings"] == {"certificate": "it expires tomorrow"}


async def test_metrics_are_refreshed_before_they_are_read(
    source: Source, endpoints: HealthEndpoints
) -> None:
    assert (await get(endpoints, "/metrics")).status is HTTPStatus.OK
    assert source.calls == ["refresh"]


async def test_endpoints_are_served_where_an_address_is_given(endpoints: HealthEndpoints) -> None:
    assert await serve_http(endpoints.routes(), "") is None

    server = await serve_http(endpoints.routes(), "127.0.0.1:0")

    assert server is not None
    assert server.port > 0
    await server.stop(grace_ms=0)
