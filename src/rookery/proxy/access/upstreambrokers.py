"""The brokers of an upstream: their addresses, and connections to them.

Where any broker will do, those that the configuration names come first, then those that responses
have named. Brokers that could not be reached come last until a probe has reached them, so that a
server that does not respond at all delays few clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from rookery.client.connect.versions import negotiate
from rookery.errors import ConfigError, Error, Unavailable
from rookery.model.address import Address
from rookery.net.upstream import Upstream
from rookery.proxy.access.upstreamaccess import CLIENT_ID, UpstreamAccess
from rookery.proxy.addresses import read_addresses
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataResponse

log = logging.getLogger(__name__)


class MissingLoginError(ConfigError):
    """The upstream wants a login, but the proxy has no credentials for it."""


class UpstreamBrokers:
    """Finds and connects to the brokers of one upstream."""

    def __init__(
        self,
        cluster: str,
        bootstrap: Sequence[Address],
        access: UpstreamAccess,
        timeout_ms: int,
    ) -> None:
        """Know no broker yet.

        Args:
            cluster: the name of the virtual cluster.
            bootstrap: the brokers to begin with.
            access: opens connections.
            timeout_ms: for a request of the proxy's own.
        """
        self.address_of: dict[int, Address] = {}
        """The address of each broker that any response has named."""
        self.access = access
        """Opens connections."""
        self.ends_logins = False
        """Whether the logins of clients end at the proxy, so that none can pass through."""
        self._cluster = cluster
        self._bootstrap = bootstrap
        self._next_bootstrap = count()
        self._unreachable: set[Address] = set()
        self._timeout_ms = timeout_ms
        # Whether only clients can ask the upstream for its brokers, because only they log in.
        self._is_passed_through = False

    async def refresh(self) -> MetadataResponse | None:
        """Ask the upstream for its brokers; return its answer, None if only clients can ask.

        Raises:
            Unavailable: no broker can be reached, or none accepts the proxy.
            ApiError: the upstream does not know the request.
            ConfigError: the upstream wants a login.
        """
        upstream = await self.open(None)
        try:
            versions = await negotiate(upstream, CLIENT_ID, {}, self._timeout_ms)
            if self._is_passed_through:
                return None
            version = versions.choose(METADATA, lowest=1)
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            response = await upstream.call(METADATA, version, request, self._timeout_ms)
        except Unavailable:
            if self.access.has_login or not await self._wants_login(upstream):
                raise
            self._is_passed_through = True
            log.info("cluster %s: clients log in at the upstream", self._cluster)
            return None
        finally:
            upstream.close()
        self.address_of.update(read_addresses(response))
        return response

    async def probe(self) -> None:
        """Connect to the brokers that could not be reached, to use them again if they can be."""
        self._unreachable &= {*self._bootstrap, *self.address_of.values()}
        await asyncio.gather(*map(self._probe, self._unreachable))

    async def open(self, node_id: int | None) -> Upstream:
        """Connect to a broker; to any of them if there is no node id.

        Raises:
            Unavailable: it cannot be reached, its certificate is refused, or it refuses the login.
        """
        addresses = self._in_turn() if node_id is None else [self.address_of[node_id]]
        problems: list[str] = []
        for address in sorted(addresses, key=self._unreachable.__contains__):
            try:
                return await self._connect(address)
            except Error as error:
                problems.append(str(error))
        raise Unavailable("; ".join(problems))

    def _in_turn(self) -> list[Address]:
        """Return all known brokers; those of the configuration come first, each in turn."""
        start = next(self._next_bootstrap) % len(self._bootstrap)
        bootstrap = [*self._bootstrap[start:], *self._bootstrap[:start]]
        return list(dict.fromkeys([*bootstrap, *self.address_of.values()]))

    async def _connect(self, address: Address) -> Upstream:
        try:
            upstream = await self.access.open(address)
        except Error:
            self._unreachable.add(address)
            raise
        self._unreachable.discard(address)
        return upstream

    async def _probe(self, address: Address) -> None:
        with suppress(Error):
            (await self._connect(address)).close()

    async def _wants_login(self, upstream: Upstream) -> bool:
        """Return whether a broker wants a login that clients can pass to it.

        Raises:
            MissingLoginError: it wants one, but the logins of clients end at the proxy.
        """
        address = Address(upstream.host, upstream.port)
        offered = await self.access.ask_mechanisms(address)
        if offered and self.ends_logins:
            raise MissingLoginError(
                f"broker {address.text} wants a login by {', '.join(offered)}; set "
                "upstream_security.mechanism and its credentials",
                name="mechanism",
            )
        return bool(offered)
