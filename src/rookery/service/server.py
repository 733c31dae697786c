"""A server process: the service itself, and its HTTP endpoints."""

from __future__ import annotations

from rookery.model.address import parse_address
from rookery.net.http import HttpServer, Routes
from rookery.net.httpsession import HttpSettings
from rookery.service.health import HealthEndpoints, HealthSource
from rookery.service.httptoken import read_token, require_token
from rookery.service.process import Service


class MonitoredServer:
    """A service with health, metrics and optional further pages over HTTP."""

    def __init__(
        self,
        service: Service,
        health: HealthSource,
        listen: str,
        pages: Routes | None = None,
        *,
        token_file: str = "",
    ) -> None:
        """Prepare a server for `service.process.run_server`.

        Args:
            service: the service next to HTTP.
            health: the source for the endpoints.
            listen: the HTTP address, as in the setting `http_listen`; empty for none.
            pages: further pages besides health and metrics.
            token_file: a file with the token that requests need; empty for none.
        """
        self.name = health.name
        self.failed = service.failed
        self.http: HttpServer | None = None
        """None without HTTP, or before the start."""
        self._service = service
        self._endpoints = HealthEndpoints(health)
        self._listen = listen
        self._pages = pages or {}
        self._token_file = token_file

    async def start(self) -> None:
        """Start HTTP, then the service.

        HTTP comes first: a port in use is reported before other members see this server, and health
        is available during a slow start.

        Raises:
            ConfigError: the address cannot be listened on, or the token cannot be read.
        """
        if self._listen:
            address = parse_address(self._listen, "http_listen", lowest_port=0)
            routes: Routes = {**self._endpoints.routes(), **self._pages}
            if self._token_file:
                routes = require_token(routes, read_token(self._token_file))
            self.http = HttpServer(routes, HttpSettings(host=address.host, port=address.port))
            await self.http.start()
        await self._service.start()
        self._endpoints.is_started = True

    def waits_for(self) -> str:
        """Return what a start under way waits for."""
        return self._service.waits_for()

    async def stop(self) -> None:
        """Stop the service, then HTTP, so that draining is reported until the end."""
        await self._service.stop()
        if self.http is not None:
            await self.http.stop(grace_ms=100)

    async def abandon(self) -> None:
        """Close everything that a failed start has opened."""
        if self.http is not None:
            await self.http.stop(grace_ms=0)
        await self._service.abandon()
