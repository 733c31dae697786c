"""The settings of listeners, as files and flags give them.

    [broker.listeners.internal]            one table per listener
    listen = "sasl_ssl://0.0.0.0:9093"     the security protocol, then the address

Commands load this module for their help, so it imports neither sockets nor TLS.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Final, Literal, Self

from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address

_LOOPBACK: Final = "127.0.0.1"


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
    """The server's certificate and those that lead to its authority (PEM), or a PKCS12 store."""
    certificate_data: str = field(default="", metadata={"secret": True}, repr=False)
    """The certificates and the private key as text (PEM), in place of files."""
    key_file: str = ""
    """The private key; empty if it is in the certificate file."""
    key_password: str = field(default="", metadata={"secret": True}, repr=False)
    """The password of the key or of the store, if it is encrypted."""
    client_ca_file: str = ""
    """Authorities of client certificates (PEM or PKCS12)."""
    client_ca_password: str = field(default="", metadata={"secret": True}, repr=False)
    """The password of these authorities, if they are a PKCS12 store."""
    client_ca_data: str = ""
    """Authorities of client certificates as text (PEM)."""
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
    """The address, after the security protocol: sasl_ssl://0.0.0.0:9093; without one, plaintext.
    A port alone, as in :9093, is of 127.0.0.1."""
    advertise: str = ""
    """The advertised address, if it differs from the one listened on."""
    shared: str = field(default="", metadata={"setting": False})
    """The address that the workers of a host share; empty with one worker."""

    def over(self, defaults: ListenerSecurity) -> Self:
        """Return the settings with other defaults for the security that is not set."""
        own = ListenerSecurity()
        unset = {
            setting.name: getattr(defaults, setting.name)
            for setting in fields(ListenerSecurity)
            if getattr(self, setting.name) == getattr(own, setting.name)
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
            known = ", ".join(member.name.lower() for member in SecurityProtocol)
            raise ConfigError(
                f"{name!r} is not a security protocol; use one of {known}", name="listen"
            ) from None

    @property
    def has_authentication(self) -> bool:
        """Whether every client has an identity, by a login or a certificate."""
        return self.protocol.has_sasl or (self.protocol.has_tls and self.client_auth == "required")

    @property
    def address(self) -> Address:
        """The address to listen on; that of a port alone is reachable from this host only."""
        text = self.listen.rpartition("://")[2]
        text = f"{_LOOPBACK}{text}" if text.startswith(":") else text
        return parse_address(text, "listen", lowest_port=0)

    def at(self, address: Address) -> Self:
        """Return the settings with another address."""
        prefix, separator, _ = self.listen.rpartition("://")
        return replace(self, listen=f"{prefix}{separator}{address.text}")

    def choose_address(self, port: int) -> Address:
        """Return the address for clients of a listener that has this port."""
        if self.advertise:
            return parse_address(self.advertise, "advertise")
        return Address(self.address.host, port)
