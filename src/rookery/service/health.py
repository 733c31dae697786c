"""Health and metrics of a process over HTTP: liveness, readiness with reasons, numbers.

GET /health/live     503 with a reason if only a restart can help
GET /health/ready    503 with reasons while clients should go elsewhere; warnings beside a 200
GET /metrics         Prometheus' text format
"""

from __future__ import annotations

from typing import Protocol

from rookery.model.address import parse_address
from rookery.net.http import Checks, HttpServer, Routes, health_route, metrics_route
from rookery.net.httpsession import HttpSettings
from rookery.net.httptext import Request, Response


class HealthSource(Protocol):
    """What a server knows about its own health."""

    name: str
    """What is served, as in "the broker is still starting"."""

    def waits_for(self) -> str:
        """Return what a start under way waits for."""

    def live_checks(self) -> Checks:
        """Return the checks that only a restart can mend."""

    def ready_checks(self) -> Checks:
        """Return the checks that decide whether clients should come here."""

    def warnings(self) -> Checks:
        """Return the checks for what needs attention although clients are served."""

    async def probe(self) -> None:
        """Ask dependencies how they are, before the readiness checks run."""

    async def refresh(self) -> None:
        """Bring all metrics up to date, before they are read."""


class HealthEndpoints:
    """Answers HTTP requests for the health and the metrics of a server."""

    def __init__(self, source: HealthSource) -> None:
        self.source = source
        self.is_started = False
        """Set when the server has started; until then it is not ready and has few metrics."""
        self._metrics = metrics_route()
        self._live = health_route(source.live_checks())
        self._ready = health_route(source.ready_checks(), source.warnings())
        self._start = health_route({"start": self._start_problem})

    def routes(self) -> Routes:
        """Return the endpoints by path."""
        return {
            "/metrics": self._answer_metrics,
            "/health/live": self._live,
            "/health/ready": self._answer_ready,
        }

    def _start_problem(self) -> str:
        return f"the {self.source.name} is still starting: {self.source.waits_for()}"

    async def _answer_metrics(self, request: Request) -> Response:
        if self.is_started:
            await self.source.refresh()
        return await self._metrics(request)

    async def _answer_ready(self, request: Request) -> Response:
        if not self.is_started:
            return await self._start(request)
        await self.source.probe()
        return await self._ready(request)


async def serve_http(routes: Routes, listen: str) -> HttpServer | None:
    """Serve routes at the address that the setting `http_listen` gives; None if it is empty.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    if not listen:
        return None
    address = parse_address(listen, "http_listen", lowest_port=0)
    server = HttpServer(routes, HttpSettings(host=address.host, port=address.port))
    await server.start()
    return server
