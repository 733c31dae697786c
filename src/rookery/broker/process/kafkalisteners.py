"""The listeners of Kafka's `server.properties`, as settings of our own.

Listeners of controllers are not served. The same holds for one that `inter.broker.listener.name`
sets apart for the brokers, if there are others for clients.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from rookery.broker.process.kafkalogins import login_values
from rookery.broker.process.kafkaproperties import KafkaProperties
from rookery.broker.process.kafkatls import tls_values
from rookery.service.listen.listenersettings import SecurityProtocol


@dataclass(frozen=True, slots=True)
class KafkaListener:
    """One listener for clients."""

    name: str
    protocol: SecurityProtocol
    listen: str
    """The protocol and the address; the address alone without security."""
    advertise: str
    """The advertised address; empty if it is the same."""
    security: dict[str, str] = field(default_factory=dict, repr=False)
    """The settings of TLS and logins, by the names of `ListenerSecurity`."""


def read_listeners(file: KafkaProperties) -> list[KafkaListener]:
    """Return the listeners for clients; empty if the file names none.

    Raises:
        ConfigError: one of them cannot be served; the text says why.
    """
    addresses = dict(_entries(file.get("listeners")))
    advertised = dict(_entries(file.get("advertised.listeners")))
    served = _select(file, list(addresses))
    return [_listener(file, name, addresses[name], advertised.get(name, "")) for name in served]


def _select(file: KafkaProperties, names: list[str]) -> list[str]:
    """Return the listeners that clients use, and report the others."""
    controllers = set(_names(file.get("controller.listener.names")))
    internal = set(_names(file.get("inter.broker.listener.name")))
    clients = [name for name in names if name not in controllers]
    others = [name for name in clients if name not in internal]
    if others and others != clients:
        [left_out] = internal
        file.warn(
            f"the listener {left_out} is not served: inter.broker.listener.name sets it apart for "
            "brokers; remove that key to serve it"
        )
        clients = others
    for name in names:
        if name in controllers:
            file.warn(f"the listener {name} is not served: it is for controllers")
    return clients


def _listener(file: KafkaProperties, name: str, address: str, advertised: str) -> KafkaListener:
    protocol = _protocol(file, name)
    host, _, port = address.rpartition(":")
    listen = f"{host or '0.0.0.0'}:{port}"  # noqa: S104 (as in the file)
    if protocol is not SecurityProtocol.PLAINTEXT:
        listen = f"{protocol.name.lower()}://{listen}"
    if not host and not advertised:
        advertised = f"{socket.gethostname()}:{port}"
    security: dict[str, str] = {}
    if protocol.has_tls:
        security |= tls_values(file, name, has_sasl=protocol.has_sasl)
    if protocol.has_sasl:
        security |= login_values(file, name)
    return KafkaListener(name, protocol, listen, advertised, security)


def _protocol(file: KafkaProperties, name: str) -> SecurityProtocol:
    key = "listener.security.protocol.map"
    protocols = dict(part.strip().upper().partition(":")[::2] for part in file.get(key).split(","))
    text = protocols.get(name, name)
    if text not in SecurityProtocol.__members__:
        known = ", ".join(SecurityProtocol.__members__)
        raise file.refusal(key, f"has no protocol for the listener {name}; add one of {known}")
    return SecurityProtocol[text]


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, _, address = part.strip().partition("://")
        if address:
            yield name.upper(), address


def _names(text: str) -> Iterator[str]:
    return (name.strip().upper() for name in text.split(",") if name.strip())
