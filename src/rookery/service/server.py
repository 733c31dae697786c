"""A server process seen from outside: the service itself, and HTTP beside it."""

from __future__ import annotations

from rookery.model.address import parse_address
from rookery.net.http import HttpServer, Routes
from rookery.net.httpsession import HttpSettings
from rookery.service.health import HealthEndpoints, HealthSource
from rookery.service.process import Service


class MonitoredServer:
    """A service with its health, its metrics and perhaps further pages over HTTP."""

    def __init__(
        self, service: Service, health: HealthSource, listen: str, pages: Routes | None = None
    ) -> None:
        """Prepare a server for `service.process.run_server`.

        Args:
            service: what is served beside HTTP.
            health: what the endpoints report.
            listen: where HTTP is served, as the setting `http_listen` gives it; empty for nowhere.
            pages: what is served there beside health and metrics.
        """
        self.name = health.name
        self.failed = service.failed
        self.http: HttpServer | None = None
        """None if there is none, or before the start."""
        self._service = service
        self._endpoints = HealthEndpoints(health)
        self._listen = listen
        self._pages = pages or {}

    async def start(self) -> None:
        """Serve HTTP, then the service.

        HTTP comes first: a port that is taken is reported before others hear of this server, and
        health is reported while a start takes long.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        if self._listen:
            address = parse_address(self._listen, "http_listen", lowest_port=0)
            routes = {**self._endpoints.routes(), **self._pages}
            self.http = HttpServer(routes, HttpSettings(host=address.host, port=address.port))
            await self.http.start()
        await self._service.start()
        self._endpoints.is_started = True

    def waits_for(self) -> str:
        """Return what a start under way waits for."""
        return self._service.waits_for()

    async def stop(self) -> None:
        """Stop the service; HTTP last, so that it reports until the end that the server drains."""
        await self._service.stop()
        if self.http is not None:
            await self.http.stop(grace_ms=100)

    async def abandon(self) -> None:
        """Close what a start that failed has opened."""
        if self.http is not None:
            await self.http.stop(grace_ms=0)
        await self._service.abandon()
