"""The path of docs/guide/security.md: an open cluster becomes a closed one, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Self

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.errors import ApiError, ErrorCode
from rookery.model.acl import PatternType
from rookery.security.access import AclResource, Operation
from rookery.security.acl import AclBinding, PermissionType
from rookery.security.tls import ClientTls
from rookery.service.access.policy import DENIALS
from rookery.service.listen.listenersettings import ListenerConfig, ListenerSecurity
from rookery.testing.certificates import Certificates
from rookery.testing.ports import HOST, free_port
from tests.broker.secured import SecuredBroker

Authorizer = Literal["none", "log", "acls"]

ALICE = Sasl("SCRAM-SHA-512", "alice", "correct horse")
ADMIN = Sasl("SCRAM-SHA-512", "admin", "battery staple")
RULE = AclBinding(
    AclResource.TOPIC,
    PatternType.LITERAL,
    "birds",
    "User:alice",
    "*",
    Operation.WRITE,
    PermissionType.ALLOW,
)


class TwoBrokers:
    """Two brokers of one cluster, whose settings change one broker at a time."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._files = Certificates.make(folder / "certificates", HOST, client="alice")
        self._ports = [{"PLAINTEXT": free_port(), "SASL_SSL": free_port()} for _ in range(2)]
        self._brokers: list[SecuredBroker | None] = [None, None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self._brokers:
            if broker is not None:
                broker.stop()

    async def roll(
        self, listeners: list[str], authorizer: Authorizer, between: Callable[[], Awaitable[None]]
    ) -> None:
        """Restart the brokers in turn with new settings; clients work while one is away."""
        for index, ports in enumerate(self._ports):
            broker = self._brokers[index]
            if broker is not None:
                self._brokers[index] = None
                await asyncio.to_thread(broker.stop)
                await between()
            settings = BrokerSettings(
                durability="os",
                node_id=index + 1,
                super_users="User:admin",
                authorizer=authorizer,
                security=ListenerSecurity(certificate_file=str(self._files.server)),
                listeners={
                    name: ListenerConfig(listen=f"{name.lower()}://{HOST}:{ports[name]}")
                    for name in listeners
                },
            )
            started = SecuredBroker(self._data, settings, self._files)
            await asyncio.to_thread(started.start)
            self._brokers[index] = started
            if broker is not None:
                await between()

    def client(self, sasl: Sasl | None = None) -> Client:
        """Return a client of the open listener, or of the closed one if it logs in."""
        listener = "SASL_SSL" if sasl else "PLAINTEXT"
        bootstrap = ",".join(f"{HOST}:{ports[listener]}" for ports in self._ports)
        tls = ClientTls(ca_file=str(self._files.ca)) if sasl else None
        return Client(
            ClientSettings(bootstrap=bootstrap, sasl=sasl, tls=tls, call_timeout_ms=20_000)
        )


def denials() -> float:
    return sum(float(line.rpartition(" ")[2]) for line in DENIALS.lines("denials"))


async def write(client: Client) -> None:
    """Write to both partitions, so to both brokers."""
    for partition in range(2):
        await client.produce("birds", b"jackdaw", partition=partition)


async def nothing() -> None:
    """Do nothing between two restarts."""


async def test_an_open_cluster_is_closed_without_downtime(tmp_path: Path) -> None:
    with TwoBrokers(tmp_path) as brokers:
        await brokers.roll(["PLAINTEXT"], "none", nothing)
        async with brokers.client() as client:
            await client.create_topic("birds", partitions=2)
            await brokers.roll(["PLAINTEXT", "SASL_SSL"], "none", lambda: write(client))
            for sasl in (ALICE, ADMIN):
                await client.users.set_password(sasl.username, sasl.password)
            await write(client)
        async with brokers.client(ALICE) as alice, brokers.client(ADMIN) as admin:
            before = denials()
            await brokers.roll(["PLAINTEXT", "SASL_SSL"], "log", lambda: write(alice))
            counted = denials() - before
            await admin.acls.create([RULE])
            await brokers.roll(["PLAINTEXT", "SASL_SSL"], "acls", lambda: write(alice))
            async with brokers.client() as stranger:
                with pytest.raises(ApiError) as refused:
                    await write(stranger)
            await brokers.roll(["SASL_SSL"], "acls", lambda: write(alice))

    assert counted > 0
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
