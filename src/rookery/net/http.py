"""A small HTTP/1.1 server for metrics, health and the console.

It serves few clients, some of them hostile: a response never reveals more about a failure than
that it occurred, and no client can lock out the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TypeAlias

from rookery import metrics
from rookery.errors import ConfigError
from rookery.net.httpsession import REQUESTS, HttpSession, HttpSettings
from rookery.net.httptext import FAILED, HttpRequest, Refusal, Response, as_json, as_text

log = logging.getLogger(__name__)

Route: TypeAlias = Callable[[HttpRequest], Awaitable[Response]]
"""Handles a request."""
Routes: TypeAlias = Mapping[str, Route]
"""By `/path` (GET and HEAD) or `POST /path`; a path that ends in `/*` matches all below it."""
Checks: TypeAlias = Mapping[str, Callable[[], str]]
"""By the name of the check: returns the problem, or nothing."""


class HttpServer:
    """Listens for HTTP requests and serves its routes."""

    def __init__(self, routes: Routes, settings: HttpSettings | None = None) -> None:
        """Prepare the server; `start` begins to listen."""
        self.settings = settings or HttpSettings()
        self.is_stopping = False
        self.accepted = 0
        self._routes = dict(routes)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._sessions: set[HttpSession] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if not self._port:
            raise ConfigError("the HTTP server has no port before it is started")
        return self._port

    @property
    def open_connections(self) -> int:
        """The number of connected clients."""
        return len(self._sessions)

    async def start(self) -> None:
        """Listen and start serving.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        host, port = self.settings.host, self.settings.port
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: HttpSession(self), host, port)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port} for HTTP: {error.strerror or error}; "
                "set another host or port, or stop what uses this one"
            ) from error
        self._port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self, grace_ms: int = 2_000) -> None:
        """Stop accepting, let requests in progress finish, then close all connections."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions):
            session.stop()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._is_empty.wait()
        except TimeoutError:
            for session in list(self._sessions):
                session.abort()
            await self._is_empty.wait()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def admit(self, session: HttpSession) -> bool:
        """Register a new session; return whether there is room for it."""
        self.accepted += 1
        has_room = not self.is_stopping
        if has_room and len(self._sessions) >= self.settings.max_connections:
            # Slow clients, in any number, must not block health checks.
            waiting = [other for other in self._sessions if other.is_waiting]
            has_room = bool(waiting)
            if waiting:
                min(waiting, key=lambda other: other.since).abort()
        self._sessions.add(session)
        self._is_empty.clear()
        return has_room

    def remove(self, session: HttpSession) -> None:
        """Remove a session."""
        self._sessions.discard(session)
        if not self._sessions:
            self._is_empty.set()

    def begin(self, request: HttpRequest, send: Callable[[Response], None]) -> None:
        """Start a request; it completes even if the client disconnects."""

        async def run() -> None:
            send(await self.answer(request))

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def answer(self, request: HttpRequest) -> Response:
        """Find the route and call it; errors also become responses."""
        name = "none"
        try:
            name, route = self._find(request)
            async with asyncio.timeout(self.settings.answer_timeout_ms / 1000):
                response = await route(request)
        except Refusal as refusal:
            response = refusal.response
        except TimeoutError:
            log.warning("%s was not answered in time", name, extra={"client": request.peer})
            response = as_text("this takes too long\n", HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:
            # The root of a task: the client learns only that it failed; the log has the reason.
            log.exception("%s failed", name, extra={"client": request.peer})
            response = FAILED
        REQUESTS.labels(name, str(response.status.value)).inc()
        return response

    def _find(self, request: HttpRequest) -> tuple[str, Route]:
        method = "GET" if request.method == "HEAD" else request.method
        allowed: list[str] = []
        for path in _patterns(request.path):
            offered = {"GET": path, "POST": f"POST {path}"}
            route = self._routes.get(offered.get(method, ""))
            if route is not None:
                return offered[method], route
            allowed += [verb for verb, name in offered.items() if name in self._routes]
        if not allowed:
            raise Refusal(HTTPStatus.NOT_FOUND, "not found")
        verbs = [verb for verb in ("GET", "HEAD", "POST") if verb.replace("HEAD", "GET") in allowed]
        only = ", ".join(verbs)
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{only} only", {"Allow": only})


def _patterns(path: str) -> Iterator[str]:
    """Yield the routes that may serve a path, the most specific first."""
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield f"{path}/*"


def metrics_route(registry: metrics.Registry = metrics.REGISTRY) -> Route:
    """Return a route that exposes all metrics in Prometheus' format."""

    async def respond(request: HttpRequest) -> Response:  # noqa: ARG001 (a route's form)
        blocks = []
        for block in registry.blocks():
            blocks.append(block)
            # Many topics make a long text, so broker clients get their turn in between.
            await asyncio.sleep(0)
        body = "".join(blocks).encode(errors="replace")
        return Response(body, content_type=metrics.CONTENT_TYPE)

    return respond


def health_route(checks: Checks, warnings: Checks | None = None) -> Route:
    """Report the problems that checks find, with 503 if there are any.

    Args:
        checks: each returns the problem, or nothing.
        warnings: the same for problems that do not affect clients; the status stays 200.
    """

    async def respond(request: HttpRequest) -> Response:  # noqa: ARG001 (a route's form)
        problems = _find_problems(checks)
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        answer: dict[str, object] = {"ok": not problems, "problems": problems}
        if failing := _find_problems(warnings or {}):
            answer["warnings"] = failing
        return as_json(answer, status)

    return respond


def _find_problems(checks: Checks) -> dict[str, str]:
    problems = {name: check() for name, check in checks.items()}
    return {name: problem for name, problem in problems.items() if problem}
