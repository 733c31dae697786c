"""Opens connections to the brokers of an upstream: TLS, and the login of the virtual cluster.

A login that expires (KIP-368) is renewed on its connection before that. Meanwhile the client's
requests wait in their order.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from rookery.client.connect.login import log_in
from rookery.client.connect.versions import Versions, negotiate
from rookery.client.settings import Sasl
from rookery.clock import Random
from rookery.errors import ConfigError, Error, ErrorCode
from rookery.model.address import Address
from rookery.net.settings import UpstreamSettings
from rookery.net.upstream import Upstream, connect
from rookery.proxy.access.privatesecret import check_private
from rookery.proxy.settings import ProxySettings, UpstreamSecurity
from rookery.security.sasl import Login, mechanisms, open_client
from rookery.security.tls import ClientTls, KeyPair, client_context
from rookery.wire.frame import Chunks
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

log = logging.getLogger(__name__)

CLIENT_ID: Final = "rookery-proxy"
"""The client id of the proxy's own requests."""

# A login is renewed after this fraction of its lifetime.
_SESSION_PART: Final = 0.8
# The interval of renewals is never shorter, whatever a broker reports.
_MIN_INTERVAL_SECONDS: Final = 0.1


class UpstreamAccess:
    """Connects to brokers, and logs in if credentials are set."""

    def __init__(
        self, settings: UpstreamSecurity, limits: ProxySettings, chunks: Chunks, random: Random
    ) -> None:
        """Read the files of the settings.

        Args:
            settings: the settings of the virtual cluster.
            limits: what all clusters of the process have in common.
            chunks: the receive buffers of all connections.
            random: creates nonces.

        Raises:
            ConfigError: a file or a setting cannot be used.
        """
        tls, self._sasl = tls_of(settings), sasl_of(settings)
        self._tls = client_context(tls) if tls is not None else None
        self._limits = limits
        self._chunks = chunks
        self._random = random
        # The loop itself holds only weak references to tasks.
        self._renewals: set[asyncio.Task[None]] = set()

    @property
    def has_login(self) -> bool:
        """Whether the proxy logs in at brokers itself."""
        return self._sasl is not None

    async def open(self, address: Address) -> Upstream:
        """Connect to a broker, and log in if credentials are set.

        Raises:
            Unavailable: it cannot be reached.
            ConfigError: its certificate is not trusted, or is for another name.
            ApiError: it refuses the login.
        """
        settings = UpstreamSettings(
            client_id=CLIENT_ID, connect_timeout_ms=self._limits.connect_timeout_ms
        )
        upstream = await connect(
            address.host, address.port, settings, tls=self._tls, chunks=self._chunks
        )
        if self._sasl is None:
            return upstream
        try:
            await self._log_in(upstream, self._sasl)
        except BaseException:
            upstream.close()
            raise
        return upstream

    async def ask_mechanisms(self, address: Address) -> list[str]:
        """Return the mechanisms by which a broker wants a login; none if it wants no login.

        Raises:
            Unavailable: it cannot be reached.
        """
        upstream = await self.open(address)
        try:
            # No broker offers this mechanism. Those that want a login answer with theirs.
            request = SaslHandshakeRequest(mechanism="")
            timeout_ms = self._limits.connect_timeout_ms
            answer = await upstream.call(SASL_HANDSHAKE, 1, request, timeout_ms)
        finally:
            upstream.close()
        wants_login = answer.error_code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return list(answer.mechanisms) if wants_login else []

    async def _log_in(self, upstream: Upstream, sasl: Sasl) -> None:
        timeout_ms = self._limits.connect_timeout_ms
        versions = await negotiate(upstream, CLIENT_ID, {}, timeout_ms)
        lifetime_ms = await log_in(upstream, versions, sasl, self._random, timeout_ms)
        if not lifetime_ms:
            return
        renewal = asyncio.create_task(self._renew(upstream, versions, sasl, lifetime_ms))
        self._renewals.add(renewal)
        renewal.add_done_callback(self._renewals.discard)
        upstream.when_lost(lambda: _cancel(renewal))

    async def _renew(
        self, upstream: Upstream, versions: Versions, sasl: Sasl, lifetime_ms: int
    ) -> None:
        """Log in again before each end of the session; close the connection if that fails."""
        # The answer waits for those to earlier requests, which can take as long as a rebalance.
        timeout_ms = self._limits.rebalance_timeout_ms
        try:
            while lifetime_ms:
                pause = max(lifetime_ms * _SESSION_PART / 1000, _MIN_INTERVAL_SECONDS)
                await asyncio.sleep(pause)
                with upstream.hold():
                    lifetime_ms = await log_in(upstream, versions, sasl, self._random, timeout_ms)
        except Error as error:
            log.warning("closing the connection to %s, whose login ends: %s", upstream.name, error)
            upstream.close()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def tls_of(settings: UpstreamSecurity) -> ClientTls | None:
    """Return the settings of TLS; None for plaintext.

    Raises:
        ConfigError: files are set, but TLS is not.
    """
    if not settings.tls:
        for name in ("ca_file", "certificate_file", "key_file"):
            if getattr(settings, name):
                raise ConfigError("is set, but `tls` is not true", name=name)
        return None
    own = None
    if settings.certificate_file:
        own = KeyPair(
            settings.certificate_file, settings.key_file or None, settings.key_password or None
        )
    elif settings.key_file:
        raise ConfigError("is set, but `certificate_file` is not", name="key_file")
    return ClientTls(ca_file=settings.ca_file or None, own=own)


def sasl_of(settings: UpstreamSecurity) -> Sasl | None:
    """Return the credentials; None if the proxy does not log in.

    Raises:
        ConfigError: they are incomplete or contradict each other.
    """
    if not settings.mechanism:
        for name in ("username", "password", "password_file", "token_file"):
            if getattr(settings, name):
                raise ConfigError("is set, but `mechanism` is not", name=name)
        return None
    if settings.mechanism not in mechanisms():
        raise ConfigError(
            f"{settings.mechanism!r} must be one of {', '.join(mechanisms())}", name="mechanism"
        )
    if settings.mechanism == "OAUTHBEARER":
        if not settings.token_file:
            raise ConfigError("must be set for OAUTHBEARER", name="token_file")
        check_private(Path(settings.token_file), "token_file")
        return Sasl(settings.mechanism, token_file=settings.token_file)
    sasl = Sasl(settings.mechanism, settings.username, _password(settings))
    # Credentials that cannot be sent are reported now, not with the first client.
    open_client(sasl.mechanism, Login(sasl.username, sasl.password, "not-a-real-nonce"))
    return sasl


def _password(settings: UpstreamSecurity) -> str:
    if not settings.password_file:
        return settings.password
    if settings.password:
        raise ConfigError("is set together with `password_file`; remove one", name="password")
    path = Path(settings.password_file)
    check_private(path, "password_file")
    try:
        return path.read_text("utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", name="password_file") from error
