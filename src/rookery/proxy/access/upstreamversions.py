"""The API versions of an upstream's brokers, for clients that have not logged in yet.

Such a client causes no connection to a broker: answers are kept, and asked for once for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rookery.client.connect.versions import negotiate
from rookery.clock import Clock
from rookery.net.upstream import Upstream
from rookery.proxy.access.upstreamaccess import CLIENT_ID
from rookery.proxy.apiversions import intersect_versions
from rookery.proxy.passage import PassageTable
from rookery.proxy.settings import ProxySettings
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE


class UpstreamVersions:
    """The answers of brokers to ApiVersions, kept for a time."""

    def __init__(
        self,
        connect: Callable[[int | None], Awaitable[Upstream]],
        passages: PassageTable,
        limits: ProxySettings,
        clock: Clock,
    ) -> None:
        """Know none yet.

        Args:
            connect: connects to a broker, or to any if there is no node id.
            passages: what passes through the proxy.
            limits: the timeout, and the age at which brokers are asked again.
            clock: times the age.
        """
        self._connect = connect
        self._passages = passages
        self._limits = limits
        self._clock = clock
        self._known: dict[int | None, tuple[int, ApiVersionsResponse]] = {}
        self._asking = asyncio.Lock()

    async def find(self, node_id: int | None) -> ApiVersionsResponse:
        """Return what clients of a broker may send.

        Raises:
            Unavailable: the broker cannot be asked.
        """
        async with self._asking:
            now_ms = self._clock.monotonic_ms()
            known = self._known.get(node_id)
            if known is not None and now_ms - known[0] < self._limits.refresh_interval_ms:
                return known[1]
            answer = self._complete(await self.ask(node_id))
            self._known[node_id] = now_ms, answer
            return answer

    async def ask(self, node_id: int | None) -> ApiVersionsResponse:
        """Ask a broker, whatever is known.

        Raises:
            Unavailable: the broker cannot be asked.
        """
        upstream = await self._connect(node_id)
        try:
            timeout_ms = self._limits.connect_timeout_ms
            versions = await negotiate(upstream, CLIENT_ID, {}, timeout_ms)
            request = ApiVersionsRequest(
                client_software_name=CLIENT_ID, client_software_version="0"
            )
            version = versions.choose(API_VERSIONS)
            return await upstream.call(API_VERSIONS, version, request, timeout_ms)
        finally:
            upstream.close()

    def _complete(self, answer: ApiVersionsResponse) -> ApiVersionsResponse:
        """Leave what passes, and offer the login at the proxy whatever the broker offers."""
        intersect_versions(answer, self._passages)
        own = {SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key}
        rows = [row for row in answer.api_keys if row.api_key not in own]
        for key in sorted(own):
            versions = self._passages.versions(key)
            rows.append(
                ApiVersion(api_key=key, min_version=versions.start, max_version=versions.stop - 1)
            )
        answer.api_keys = rows
        return answer
