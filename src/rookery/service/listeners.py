"""Listeners of a server: their settings, their TLS and login, and the identity of their clients.

    [broker.listeners.internal]            one table per listener
    listen = "sasl_ssl://0.0.0.0:9093"     the security protocol, then the address

A client connects to one listener. Its session keeps the listener's name, so that the server
advertises addresses that this client can reach.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Final, Literal

from rookery.errors import ConfigError, ProtocolError
from rookery.model.address import Address, parse_address
from rookery.net.connection import Connection
from rookery.security.bearer import BearerSettings
from rookery.security.distinguishedname import format_name, read_subject
from rookery.security.principal import PrincipalMapping
from rookery.security.sasl import mechanisms
from rookery.security.tls import ClientAuth, KeyPair, ServerTls
from rookery.service.login import LoginSettings

log = logging.getLogger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated."""


class SecurityProtocol(Enum):
    """How a listener is protected; Kafka's names and numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How a listener is protected, for all listeners or for one."""

    certificate_file: str = ""
    """The server's certificate and those that lead to its authority (PEM)."""
    key_file: str = ""
    """The private key; empty if it is in the certificate file."""
    key_password: str = field(default="", metadata={"secret": True}, repr=False)
    """The password of the key, if it is encrypted."""
    client_ca_file: str = ""
    """Authorities of client certificates (PEM)."""
    client_auth: Literal["none", "requested", "required"] = "none"
    """Whether clients are asked for a certificate."""
    principal_mapping_rules: str = "DEFAULT"
    """How the name of a client's certificate becomes its user (Kafka's
    ssl.principal.mapping.rules); for listeners with TLS and without SASL."""
    mechanisms: str = "SCRAM-SHA-512,SCRAM-SHA-256"
    """The SASL mechanisms that are offered, separated by commas."""
    max_session_ms: int = field(default=0, metadata={"min": 0})
    """How long a login is valid (Kafka's connections.max.reauth.ms); 0 without limit."""
    oauth_jwks: str = ""
    """The keys of the issuer of tokens, for OAUTHBEARER: a file, or an https URL."""
    oauth_issuer: str = ""
    """The issuer that tokens must name."""
    oauth_audience: str = ""
    """The audience that tokens must name."""
    oauth_user_claim: str = "sub"
    """The claim of a token that is the name of the user."""


@dataclass(frozen=True, slots=True)
class ListenerConfig(ListenerSecurity):
    """The settings of one listener; security that is not set is that of the broker."""

    listen: str = ""
    """The address, after the security protocol: sasl_ssl://0.0.0.0:9093; without one, plaintext."""
    advertise: str = ""
    """The advertised address, if it differs from the one listened on."""
    shared: str = field(default="", metadata={"setting": False})
    """The address that the workers of a host share; empty with one worker."""

    def over(self, defaults: ListenerSecurity) -> ListenerConfig:
        """Return the settings with other defaults for the security that is not set."""
        own = ListenerSecurity()
        unset = {
            one.name: getattr(defaults, one.name)
            for one in fields(ListenerSecurity)
            if getattr(self, one.name) == getattr(own, one.name)
        }
        return replace(self, **unset)

    @property
    def protocol(self) -> SecurityProtocol:
        """The security protocol.

        Raises:
            ConfigError: there is no such protocol.
        """
        name, separator, _ = self.listen.partition("://")
        if not separator:
            return SecurityProtocol.PLAINTEXT
        try:
            return SecurityProtocol[name.upper()]
        except KeyError:
            known = ", ".join(one.name.lower() for one in SecurityProtocol)
            raise ConfigError(
                f"{name!r} is not a security protocol; use one of {known}", name="listen"
            ) from None

    @property
    def has_authentication(self) -> bool:
        """Whether every client has an identity, by a login or a certificate."""
        return self.protocol.has_sasl or (self.protocol.has_tls and self.client_auth == "required")

    @property
    def address(self) -> Address:
        """The address to listen on."""
        return parse_address(self.listen.rpartition("://")[2], "listen", lowest_port=0)

    def at(self, address: Address) -> ListenerConfig:
        """Return the settings with another address."""
        prefix, separator, _ = self.listen.rpartition("://")
        return replace(self, listen=f"{prefix}{separator}{address.text}")

    def advertised(self, port: int) -> Address:
        """Return the address for clients of a listener that has this port."""
        if self.advertise:
            return parse_address(self.advertise, "advertise")
        return Address(self.address.host, port)

    def tls(self) -> ServerTls | None:
        """Return the settings of TLS; None for a listener without TLS.

        Raises:
            ConfigError: there is no certificate.
        """
        if not self.protocol.has_tls:
            return None
        if not self.certificate_file:
            raise ConfigError(
                f"must be set, because the listener is {self.listen}", name="certificate_file"
            )
        own = KeyPair(self.certificate_file, self.key_file or None, self.key_password or None)
        auth = ClientAuth(self.client_auth)
        return ServerTls(own, self.client_ca_file or None, auth)

    def login(self) -> LoginSettings:
        """Return the settings of logins; without mechanisms if the listener has no SASL.

        Raises:
            ConfigError: a mechanism does not exist.
        """
        if not self.protocol.has_sasl:
            return LoginSettings()
        names = tuple(name.strip() for name in self.mechanisms.split(",") if name.strip())
        unknown = [name for name in names if name not in mechanisms()]
        if unknown or not names:
            raise ConfigError(
                f"{self.mechanisms!r} must name some of {', '.join(mechanisms())}",
                name="mechanisms",
            )
        return LoginSettings(names, self.max_session_ms)

    def bearer(self) -> BearerSettings | None:
        """Return the settings of tokens; None if the listener does not offer OAUTHBEARER.

        Raises:
            ConfigError: a setting is missing or cannot be used.
        """
        if "OAUTHBEARER" not in self.login().mechanisms:
            return None
        return BearerSettings(
            self.oauth_jwks, self.oauth_issuer, self.oauth_audience, self.oauth_user_claim
        )


class ListenerIdentity:
    """Gives every client of one listener its identity when it connects."""

    def __init__(
        self, name: str, config: ListenerConfig, record: Callable[[str], int] | None = None
    ) -> None:
        """Prepare the identities.

        Args:
            name: of the listener.
            config: of the listener.
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
            session.principal = self._certified(connection)
        except ProtocolError as error:
            log.info("client certificate refused: %s", error, extra={"client": connection.peer})
            connection.abort()

    def _certified(self, connection: Connection) -> str:
        """Return the principal of the client's certificate.

        Raises:
            ProtocolError: no rule matches its name, or it has none.
        """
        tls = connection.transport_info("ssl_object")
        certificate = tls.getpeercert(True) if isinstance(tls, ssl.SSLObject) else None  # noqa: FBT003 (its only form)
        if certificate is None:
            return ANONYMOUS
        name = format_name(read_subject(certificate))
        user = self._mapping.apply(name)
        if user is None:
            raise ProtocolError(f"no rule of principal_mapping_rules matches {name!r}")
        return f"User:{user}"
