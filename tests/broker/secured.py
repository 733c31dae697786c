"""A broker with one listener per security protocol, its users and their certificates."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rookery.broker.settings import DEFAULT_LISTEN, BrokerSettings
from rookery.client.settings import ClientSettings, Sasl
from rookery.cluster.events.securityevents import (
    AclRow,
    AclsCreated,
    ScramChange,
    ScramCredentialsChanged,
)
from rookery.errors import ErrorCode
from rookery.security.credential import MIN_ITERATIONS, SCRAM_MECHANISMS, ScramCredential
from rookery.security.tls import ClientTls
from rookery.service.listen.listenersettings import ListenerConfig, ListenerSecurity
from rookery.testing.certificates import Certificates
from rookery.testing.servedbroker import ServedBroker

USER: Final = "alice"
PASSWORD: Final = "alice-secret"  # noqa: S105 (the fixture's)
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HOST: Final = "127.0.0.1"


class SecuredBroker(ServedBroker):
    """A broker with listeners of every kind on ports that the system chooses."""

    def __init__(self, folder: Path, settings: BrokerSettings, files: Certificates) -> None:
        super().__init__(folder, settings)
        # The tables of listeners replace the address.
        self.settings = replace(self.settings, listen=DEFAULT_LISTEN)
        self.files = files

    def address(self, listener: str) -> str:
        """Return the advertised address of a listener."""
        [row] = [row for row in self.broker.ports.endpoints if row.listener == listener]
        return f"{row.host}:{row.port}"

    def client(self, listener: str, sasl: Sasl | None = None) -> ClientSettings:
        """Return settings for our own client, which trusts the authority."""
        tls = ClientTls(ca_file=str(self.files.ca)) if listener.endswith("ssl") else None
        return ClientSettings(
            bootstrap=self.address(listener), sasl=sasl, tls=tls, call_timeout_ms=20_000
        )

    def librdkafka(self, listener: str, mechanism: str = "", **extra: object) -> dict[str, Any]:
        """Return librdkafka's settings for a listener."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.address(listener),
            "security.protocol": listener,
            "ssl.ca.location": str(self.files.ca),
        }
        if mechanism:
            config |= {
                "sasl.mechanism": mechanism,
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        return config | extra

    def trust(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the authority."""
        return ssl.create_default_context(cafile=str(self.files.ca))

    def add_user(self, user: str, password: str) -> None:
        """Store credentials of a user for both SCRAM mechanisms."""
        self.do(self._add_user(user, password))

    async def _add_user(self, user: str, password: str) -> None:
        changes = [_change(mechanism, password) for mechanism in SCRAM_MECHANISMS]
        event = ScramCredentialsChanged(user=user, changes=changes)
        [outcome] = await self.broker.replica.propose([event])
        assert outcome.error is ErrorCode.NONE

    def allow(self, principal: str, prefix: str) -> None:
        """Let a principal use all topics and groups whose names begin with a prefix."""
        topic, group, prefixed, everything, allow = 2, 3, 4, 2, 3
        rules = [
            AclRow(
                resource_type=kind,
                pattern_type=prefixed,
                resource_name=prefix,
                principal=principal,
                host="*",
                operation=everything,
                permission=allow,
            )
            for kind in (topic, group)
        ]

        async def create() -> None:
            [outcome] = await self.broker.replica.propose([AclsCreated(rules=rules)])
            assert outcome.error is ErrorCode.NONE

        self.do(create())


def _change(mechanism: str, password: str) -> ScramChange:
    known = ScramCredential.from_password(mechanism, password, os.urandom(16), MIN_ITERATIONS)
    return ScramChange(
        mechanism=SCRAM_MECHANISMS[mechanism],
        iterations=known.iterations,
        salt=known.salt,
        stored_key=known.stored_key,
        server_key=known.server_key,
    )


@contextmanager
def serve_secured(
    folder: Path, options: Mapping[str, Any] | None = None, /, **security: object
) -> Iterator[SecuredBroker]:
    """Start a broker with four listeners, named like their protocols, and the user alice.

    Args:
        folder: the folder for data and certificates.
        options: settings of the broker in addition to its security.
        security: settings of all listeners.
    """
    files = Certificates.make(folder / "certificates", HOST, "localhost", client=USER)
    names = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
    values = {
        "certificate_file": str(files.server),
        "client_ca_file": str(files.ca),
        "client_auth": "requested",
        "mechanisms": ",".join(SASL_MECHANISMS),
        **security,
    }
    settings = BrokerSettings(
        **{"durability": "os", **(options or {})},
        security=ListenerSecurity(**values),  # type: ignore[arg-type]  # settings by name
        listeners={name: ListenerConfig(listen=f"{name}://{HOST}:0") for name in names},
    )
    with SecuredBroker(folder / "data", settings, files) as broker:
        broker.add_user(USER, PASSWORD)
        yield broker


class RawStream:
    """One connection on which a test sends frames of its own making."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: str, tls: ssl.SSLContext | None = None) -> RawStream:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        return cls(reader, writer)

    async def send(self, frame: bytes) -> None:
        """Send a frame without its length."""
        await self.send_bytes(len(frame).to_bytes(4, "big") + frame)

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """Return the next frame without its length."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    async def wait_closed(self) -> bytes:
        """Return the rest of the input, once the server has closed the connection."""
        try:
            return await self._reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self._writer.wait_closed()
