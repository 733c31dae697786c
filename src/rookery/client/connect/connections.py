"""The connections to a cluster's brokers: opened on demand, shared, replaced when lost.

A broker answers the requests of a connection one after the other, so a fetch that waits for records
blocks all requests after it. Requests that must not block each other use different lanes: a broker
may have one connection per lane.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from enum import Enum
from typing import Final

from rookery.client.connect.login import log_in
from rookery.client.connect.versions import Versions, negotiate
from rookery.client.settings import ClientSettings
from rookery.clock import Clock, Random
from rookery.errors import Error, Unavailable
from rookery.model.address import Address
from rookery.net.settings import UpstreamSettings
from rookery.net.upstream import Upstream, connect
from rookery.security.tls import client_context
from rookery.wire.codec import request_frame
from rookery.wire.frame import Chunks
from rookery.wire.message import Api, Request, Response

log = logging.getLogger(__name__)

# A login is renewed after this fraction of its lifetime (KIP-368).
_SESSION_PART: Final = 0.8
_NEVER: Final = 2**62


class Lane(Enum):
    """Requests in the same lane wait for each other, and for no others."""

    QUESTIONS = "questions"
    """Requests that are answered immediately."""
    PRODUCE = "produce"
    """Requests that wait for replicas."""
    FETCH = "fetch"
    """Requests that wait for records."""
    GROUP = "group"
    """Requests that wait for the other members of a group."""


class Link:
    """A connection that is ready for use: versions are negotiated and the login is complete."""

    def __init__(
        self, upstream: Upstream, versions: Versions, settings: ClientSettings, clock: Clock
    ) -> None:
        self._upstream = upstream
        self._client_id = settings.client_id
        # A broker that requires a login closes the connection on the first real request.
        self._hint = "" if settings.sasl else "; if this listener wants a login, set `sasl`"
        self._clock = clock
        self._renew_at = _NEVER
        self._is_retired = False
        self.versions = versions

    @property
    def name(self) -> str:
        """Host and port, for messages."""
        return self._upstream.name

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed."""
        return self._upstream.is_closed

    @property
    def is_usable(self) -> bool:
        """Whether it accepts new requests."""
        return (
            not self._upstream.is_closed
            and not self._is_retired
            and self._clock.monotonic_ms() < self._renew_at
        )

    async def call(
        self, api: Api[Request, Response], version: int, request: Request, timeout_ms: int
    ) -> Response:
        """Send a request in that version and return the response.

        Raises:
            Unavailable: there was no response; the link is closed.
        """
        try:
            answer = await self._upstream.call(api, version, request, timeout_ms)
            self._hint = ""
            return answer
        except Unavailable as error:
            # After a timeout the connection is not reused: late responses would only delay other
            # requests.
            self.close()
            raise Unavailable(f"{error}{self._hint}") from error
        finally:
            self._close_if_done()

    async def post(
        self, api: Api[Request, Response], version: int, request: Request, timeout_ms: int
    ) -> None:
        """Send a request that the broker does not answer."""
        parts = request_frame(api, version, 0, self._client_id, request)
        try:
            await self._upstream.post([memoryview(parts[0])[4:], *parts[1:]], timeout_ms)
        except Unavailable:
            self.close()
            raise

    def expire_in(self, session_ms: int) -> None:
        """Accept no new requests from some time before a login of that duration ends."""
        self._renew_at = self._clock.monotonic_ms() + int(session_ms * _SESSION_PART)

    def retire(self) -> None:
        """Accept no new requests; close after those in flight are answered."""
        self._is_retired = True
        self._close_if_done()

    def close(self) -> None:
        """Close immediately; requests in flight fail."""
        self._upstream.close()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await self._upstream.wait_closed()

    def _close_if_done(self) -> None:
        if self._is_retired and not self._upstream.in_flight:
            self.close()


class Connections:
    """At most one link per address and lane."""

    def __init__(self, settings: ClientSettings, clock: Clock, random: Random) -> None:
        self._settings = settings
        self._clock = clock
        self._random = random
        self._chunks = Chunks(large_bytes=settings.kept_bytes)
        self._tls: ssl.SSLContext | None = client_context(settings.tls) if settings.tls else None
        self._links: dict[tuple[Address, Lane], Link] = {}
        self._opening: dict[tuple[Address, Lane], asyncio.Task[Link]] = {}
        self._retired: set[Link] = set()
        self._is_closed = False

    async def get(self, address: Address, lane: Lane = Lane.QUESTIONS) -> Link:
        """Return the link to a broker; connect and log in if there is none.

        Raises:
            Unavailable: the broker cannot be reached.
            ConfigError: its certificate is not trusted, or a setting cannot be used.
            ApiError: it rejects the login, or has no protocol version in common with us.
        """
        self._check_open()
        key = address, lane
        link = self._links.get(key)
        if link is not None:
            if link.is_usable:
                return link
            self._drop(key, link)
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.create_task(self._open(key))
            task.add_done_callback(_retrieve)
        try:
            # Other tasks may wait for the same connection: cancelling one must not cancel the
            # others.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                self._check_open()
            raise

    def usable(self, addresses: Iterable[Address]) -> list[Address]:
        """Return the addresses that can be queried without connecting first."""
        linked = []
        for address in addresses:
            link = self._links.get((address, Lane.QUESTIONS))
            if link is not None and link.is_usable:
                linked.append(address)
        return linked

    async def close(self) -> None:
        """Close all connections and wait until they are closed."""
        self._is_closed = True
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        links = [*self._links.values(), *self._retired]
        self._links.clear()
        self._retired.clear()
        for link in links:
            link.close()
        for link in links:
            await link.wait_closed()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("the client is closed; make a new one")

    def _drop(self, key: tuple[Address, Lane], link: Link) -> None:
        del self._links[key]
        self._retired = {old for old in self._retired if not old.is_closed}
        self._retired.add(link)
        link.retire()

    async def _open(self, key: tuple[Address, Lane]) -> Link:
        try:
            link = self._links[key] = await self._connect(key[0])
            return link
        finally:
            del self._opening[key]

    async def _connect(self, address: Address) -> Link:
        settings = self._settings
        upstream = await connect(
            address.host,
            address.port,
            UpstreamSettings(
                client_id=settings.client_id,
                connect_timeout_ms=settings.connect_timeout_ms,
                max_frame_bytes=settings.max_frame_bytes,
            ),
            tls=self._tls,
            chunks=self._chunks,
        )
        try:
            return await self._greet(upstream)
        except BaseException:
            upstream.close()
            raise

    async def _greet(self, upstream: Upstream) -> Link:
        """Negotiate versions with the broker and log in."""
        settings = self._settings
        timeout_ms = settings.connect_timeout_ms
        try:
            versions = await negotiate(
                upstream, settings.client_id, settings.max_versions, timeout_ms
            )
        except Unavailable as error:
            raise Unavailable(f"{error}; {self._hint()}") from error
        link = Link(upstream, versions, settings, self._clock)
        if settings.sasl is not None:
            session_ms = await log_in(upstream, versions, settings.sasl, self._random, timeout_ms)
            if session_ms:
                link.expire_in(session_ms)
        log.debug("connected to %s as %s", upstream.name, settings.client_id)
        return link

    def _hint(self) -> str:
        """Return the most likely cause if a broker closes the connection on the first request."""
        if self._settings.tls is None:
            return "if this listener speaks TLS, set `tls`"
        return "is this a listener that speaks TLS?"


def _retrieve(task: asyncio.Task[Link]) -> None:
    # All waiters may have been cancelled, so retrieve the error here.
    if not task.cancelled() and isinstance(error := task.exception(), Error):
        log.debug("no connection: %s", error)
