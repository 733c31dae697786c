"""Health and metrics of a process over HTTP: liveness, readiness with reasons, metrics.

GET /health/live     503 with a reason if only a restart can help
GET /health/ready    503 with reasons while clients should go elsewhere; warnings with a 200
GET /metrics         Prometheus' text format
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rookery.metrics import MetricReading
from rookery.net.http import Checks, Routes, health_route, metrics_route
from rookery.net.httptext import HttpRequest, Response
from rookery.service.process import Service
from rookery.service.processmetrics import process_numbers


class HealthSource(Protocol):
    """A server's report on its own health."""

    name: str
    """The name of the server, as in "the broker is still starting"."""

    def waits_for(self) -> str:
        """Return what a start under way waits for."""

    def live_checks(self) -> Checks:
        """Return the checks for failures that only a restart can fix."""

    def ready_checks(self) -> Checks:
        """Return the checks that decide whether the server can serve clients."""

    def warnings(self) -> Checks:
        """Return the checks for problems that do not prevent the server from serving clients."""

    async def probe(self) -> None:
        """Query the dependencies before the readiness checks run."""

    async def refresh(self) -> None:
        """Update all metrics before they are read."""


class ServerHealth:
    """The health checks that all servers have in common; subclasses add their own."""

    def __init__(self, name: str, service: Service, numbers: Iterable[MetricReading] = ()) -> None:
        """Report on a server.

        Args:
            name: the name of the server, as in "the broker is still starting".
            service: the service that is started and may fail.
            numbers: its own metrics; those of the process are reported, too.
        """
        self.name = name
        self._service = service
        self._numbers = [*numbers, *process_numbers()]

    def waits_for(self) -> str:
        """Return what a start under way waits for."""
        return self._service.waits_for()

    def live_checks(self) -> Checks:
        """Return the check for a failure that only a restart can fix."""
        return {self.name: self._failure}

    def ready_checks(self) -> Checks:
        """Return the same check: the server can serve clients unless it has failed."""
        return {self.name: self._failure}

    def warnings(self) -> Checks:
        """Return no checks."""
        return {}

    async def probe(self) -> None:
        """Do nothing, since there are no dependencies."""

    async def refresh(self) -> None:
        """Update all metrics."""
        await self.probe()
        for metric, read in self._numbers:
            metric.value = read()

    def _failure(self) -> str:
        failed = self._service.failed
        error = failed.exception() if failed.done() and not failed.cancelled() else None
        return str(error or "")


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

    async def _answer_metrics(self, request: HttpRequest) -> Response:
        if self.is_started:
            await self.source.refresh()
        return await self._metrics(request)

    async def _answer_ready(self, request: HttpRequest) -> Response:
        if not self.is_started:
            return await self._start(request)
        await self.source.probe()
        return await self._ready(request)
