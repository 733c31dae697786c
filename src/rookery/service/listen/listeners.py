"""Listeners of a server: their TLS and login, and the identity of their clients.

A client connects to one listener. Its session keeps the listener's name, so that the server
advertises addresses that this client can reach.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable

from rookery.errors import ConfigError, ProtocolError
from rookery.net.connection import Connection
from rookery.security.bearer import BearerSettings
from rookery.security.distinguishedname import format_name, read_subject
from rookery.security.principal import ANONYMOUS, USER, Principal, PrincipalMapping
from rookery.security.sasl import mechanisms
from rookery.security.tls import ClientAuth, KeyPair, ServerTls
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.service.listen.login import LoginSettings

log = logging.getLogger(__name__)


def tls_settings(config: ListenerConfig) -> ServerTls | None:
    """Return the settings of TLS; None for a listener without TLS.

    Raises:
        ConfigError: there is no certificate.
    """
    if not config.protocol.has_tls:
        return None
    if not config.certificate_file and not config.certificate_data:
        raise ConfigError(
            f"must be set, because the listener is {config.listen}", name="certificate_file"
        )
    own = KeyPair(
        config.certificate_file,
        config.key_file or None,
        config.key_password or None,
        config.certificate_data or None,
    )
    return ServerTls(
        own,
        config.client_ca_file or None,
        ClientAuth(config.client_auth),
        config.client_ca_password or None,
        config.client_ca_data or None,
    )


def login_settings(config: ListenerConfig) -> LoginSettings:
    """Return the settings of logins; without mechanisms if the listener has no SASL.

    Raises:
        ConfigError: a mechanism does not exist.
    """
    if not config.protocol.has_sasl:
        return LoginSettings()
    names = tuple(name.strip() for name in config.mechanisms.split(",") if name.strip())
    unknown = [name for name in names if name not in mechanisms()]
    if unknown or not names:
        raise ConfigError(
            f"{config.mechanisms!r} must name some of {', '.join(mechanisms())}",
            name="mechanisms",
        )
    return LoginSettings(names, config.max_session_ms)


def bearer_settings(config: ListenerConfig) -> BearerSettings | None:
    """Return the settings of tokens; None if the listener does not offer OAUTHBEARER.

    Raises:
        ConfigError: a setting is missing or cannot be used.
    """
    if "OAUTHBEARER" not in login_settings(config).mechanisms:
        return None
    return BearerSettings(
        config.oauth_jwks, config.oauth_issuer, config.oauth_audience, config.oauth_user_claim
    )


class ListenerIdentity:
    """Gives every client of one listener its identity when it connects."""

    def __init__(
        self, name: str, config: ListenerConfig, record: Callable[[str], int] | None = None
    ) -> None:
        """Prepare the identities.

        Args:
            name: the name of the listener.
            config: the configuration of the listener.
            record: records a connection from a host; returns after how many milliseconds to
                close it, 0 to accept it.

        Raises:
            ConfigError: the rules of the mapping cannot be used.
        """
        self.name = name
        self.config = config
        self._mapping = PrincipalMapping(config.principal_mapping_rules)
        self._record = record

    def admit(self, connection: Connection) -> None:
        """Fill the session of a new connection; with SASL, the principal follows from the login."""
        session = connection.session
        session.listener = self.name
        session.host = connection.peer.rpartition(":")[0].strip("[]")
        delay_ms = self._record(session.host) if self._record is not None else 0
        if delay_ms:
            # Closed late, as in Kafka: a client would connect again at once.
            connection.pause()
            asyncio.get_running_loop().call_later(delay_ms / 1000, connection.abort)
        if self.config.protocol.has_sasl:
            return
        try:
            session.principal = self._read_certificate(connection)
        except ProtocolError as error:
            log.info("client certificate refused: %s", error, extra={"client": connection.peer})
            connection.abort()

    def _read_certificate(self, connection: Connection) -> str:
        """Return the principal of the client's certificate.

        Raises:
            ProtocolError: no rule matches its name, or it has none.
        """
        tls = connection.transport_info("ssl_object")
        certificate = tls.getpeercert(True) if isinstance(tls, ssl.SSLObject) else None  # noqa: FBT003 (its only form)
        if certificate is None:
            return str(ANONYMOUS)
        name = format_name(read_subject(certificate))
        user = self._mapping.apply(name)
        if user is None:
            raise ProtocolError(f"no rule of principal_mapping_rules matches {name!r}")
        return str(Principal(USER, user))
