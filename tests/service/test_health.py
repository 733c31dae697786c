"""Health and metrics over HTTP: reasons, warnings, and what is asked before the answer."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

import pytest

from rookery.errors import Unavailable
from rookery.metrics import Gauge
from rookery.net.http import Checks
from rookery.net.httptext import HttpRequest, Response
from rookery.net.listener import Listener
from rookery.service.health import HealthEndpoints, ServerHealth
from rookery.service.listen.listenermetrics import listener_numbers


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
    return await endpoints.routes()[path](HttpRequest("GET", path))


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


async def test_warning_does_not_affect_readiness(
    source: Source, endpoints: HealthEndpoints
) -> None:
    source.warning = "it expires tomorrow"

    answer = await get(endpoints, "/health/ready")

    assert answer.status is HTTPStatus.OK
    assert json.loads(answer.body)["warnings"] == {"certificate": "it expires tomorrow"}


async def test_metrics_are_refreshed_before_they_are_read(
    source: Source, endpoints: HealthEndpoints
) -> None:
    assert (await get(endpoints, "/metrics")).status is HTTPStatus.OK
    assert source.calls == ["refresh"]


class StoppableService:
    """A service that the test makes fail."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None: ...

    def waits_for(self) -> str:
        return "nothing"

    async def stop(self) -> None: ...

    async def abandon(self) -> None: ...


async def test_failed_service_is_neither_alive_nor_ready() -> None:
    service = StoppableService()
    endpoints = HealthEndpoints(ServerHealth("proxy", service))
    endpoints.is_started = True
    well = [await get(endpoints, path) for path in ("/health/live", "/health/ready")]

    service.failed.set_exception(Unavailable("the port is gone"))

    ill = [await get(endpoints, path) for path in ("/health/live", "/health/ready")]
    assert {answer.status for answer in well} == {HTTPStatus.OK}
    for answer in ill:
        assert json.loads(answer.body)["problems"] == {"proxy": "the port is gone"}


async def test_gauges_are_read_when_metrics_are_requested() -> None:
    gauge, clients = Gauge(), [1.0]
    endpoints = HealthEndpoints(
        ServerHealth("proxy", StoppableService(), [(gauge, lambda: len(clients))])
    )
    endpoints.is_started = True
    clients.append(2.0)

    body = (await get(endpoints, "/metrics")).body.decode()

    assert gauge.value == 2
    assert "\nprocess_cpu_seconds_total " in body


async def test_clients_of_all_listeners_are_counted() -> None:
    listeners: list[Listener] = []
    numbers = listener_numbers(listeners)
    listeners += [Listener(lambda *_: None), Listener(lambda *_: None)]
    for number, listener in enumerate(listeners):
        listener.accepted, listener.refused = 3 + number, number

    assert [read() for _, read in numbers] == [0, 7, 1]
