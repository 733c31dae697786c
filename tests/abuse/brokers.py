"""The brokers that are attacked: an open one, and a closed one with its users."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.clock import SystemClock
from rookery.model.acl import PatternType
from rookery.security.access import AclResource, Operation
from rookery.security.acl import AclBinding, PermissionType
from rookery.security.tls import ClientTls
from rookery.testing.broker import BrokerProcess
from rookery.testing.wait import wait_until
from tests.abuse.attack import Attacker, Door
from tests.abuse.samples import TOPIC
from tests.abuse.topics import make_topic
from tests.abuse.victims import OWN_TOPIC, Role, Victim
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

FLAGS = ("--durability", "os", "--tail-bytes", "4194304", "--cache-bytes", "4194304")
ADMIN, MEMBER, WRITER, GUEST = "admin", "member", "writer", "guest"
PASSWORD = "the password of member, writer and guest"  # noqa: S105 (the fixture's)
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
# What the member may do with the cluster. It changes no rules and no users: others need theirs.
CLUSTER_OPERATIONS = (
    Operation.CREATE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


class OpenBroker(BrokerProcess, Victim):
    """A broker that serves everyone, without TLS."""

    def __init__(self, folder: Path, flags: tuple[str, ...] = ()) -> None:
        super().__init__(folder / "data", flags=(*FLAGS, *flags))

    @property
    def doors(self) -> Mapping[Role, Door]:
        """The one way in."""
        return {Role.ANYONE: Door(self.port)}

    @property
    def door(self) -> Door:
        """The one way in."""
        return Door(self.port)


class Fortress(BrokerProcess, Victim):
    """A broker with one listener: TLS, logins, access rules and an audit file."""

    def __init__(self, folder: Path, flags: tuple[str, ...] = ()) -> None:
        self.issuer = Issuer(SystemClock().now_ms())
        self.audit = folder / "audit.log"
        keys = self.issuer.write(folder / "jwks.json")
        super().__init__(
            folder / "data",
            flags=(
                *(*FLAGS, "--secure", "--security-mechanisms", MECHANISMS),
                *("--security-oauth-jwks", str(keys), "--security-oauth-issuer", ISSUER),
                *("--security-oauth-audience", AUDIENCE, "--audit-file", str(self.audit)),
                *flags,
            ),
        )

    @property
    def authority(self) -> Path:
        return self.folder / "security" / "ca.pem"

    @property
    def stranger(self) -> Door:
        """A way in for clients without a login."""
        return Door(self.port, ssl.create_default_context(cafile=str(self.authority)))

    @property
    def guest(self) -> Door:
        """A way in for a user without rules."""
        return Door(self.port, self.stranger.tls, GUEST, PASSWORD)

    @property
    def doors(self) -> Mapping[Role, Door]:
        """A way in for each kind of client."""
        return {
            Role.MEMBER: Door(self.port, self.stranger.tls, MEMBER, PASSWORD),
            Role.GUEST: self.guest,
            Role.STRANGER: self.stranger,
        }

    @property
    def door(self) -> Door:
        """A way in for a user with rules for one topic."""
        return Door(self.port, self.stranger.tls, WRITER, PASSWORD)

    def records(self, start: int = 0) -> list[dict[str, Any]]:
        """Return the audit records, from a byte of the file on."""
        lines = self.audit.read_bytes()[start:].decode().splitlines()
        return [json.loads(line) for line in lines]

    def audited(self) -> int:
        """Return the size of the audit file."""
        return self.audit.stat().st_size

    def wait_for_audit(self) -> None:
        """Return when everything that has happened until now is in the audit file."""
        with Attacker(self.stranger) as line:
            assert line.choose(b"PLAIN") == 0
            name = f"mark-{self.audited()}"
            line.authenticate(b"\0" + name.encode() + b"\0wrong")
        wait_until(self._audit_tail, name, accepts=lambda tail: name in tail)

    def _audit_tail(self) -> str:
        return self.audit.read_bytes()[-4000:].decode(errors="replace")

    def client(self) -> ClientSettings:
        """Return the settings of the administrator's client."""
        password = (self.folder / "security" / "admin-password").read_text().strip()
        return ClientSettings(
            bootstrap=self.bootstrap,
            tls=ClientTls(ca_file=str(self.authority)),
            sasl=Sasl("SCRAM-SHA-512", ADMIN, password),
        )


@contextmanager
def open_broker(folder: Path, flags: tuple[str, ...] = ()) -> Iterator[OpenBroker]:
    """Start an open broker with the topic of good clients."""
    with OpenBroker(folder, flags) as broker:
        make_topic(broker.door, OWN_TOPIC)
        yield broker


@contextmanager
def open_fortress(folder: Path, flags: tuple[str, ...] = ()) -> Iterator[Fortress]:
    """Start a closed broker with its users and topics."""
    with Fortress(folder, flags) as broker:
        asyncio.run(_prepare(broker))
        yield broker


async def _prepare(broker: Fortress) -> None:
    async with Client(broker.client()) as client:
        for user in (MEMBER, WRITER, GUEST):
            await client.users.set_password(user, PASSWORD)
        for topic in (TOPIC, OWN_TOPIC):
            await client.admin.create_topic(topic, 1, 1)
        await client.acls.create(
            [
                _rule(WRITER, AclResource.TOPIC, OWN_TOPIC),
                *(
                    _rule(MEMBER, kind, "*")
                    for kind in (
                        AclResource.TOPIC,
                        AclResource.GROUP,
                        AclResource.TRANSACTIONAL_ID,
                    )
                ),
                *(
                    _rule(MEMBER, AclResource.CLUSTER, "kafka-cluster", operation)
                    for operation in CLUSTER_OPERATIONS
                ),
            ]
        )


def _rule(
    user: str, kind: AclResource, name: str, operation: Operation = Operation.ALL
) -> AclBinding:
    return AclBinding(
        kind, PatternType.LITERAL, name, f"User:{user}", "*", operation, PermissionType.ALLOW
    )
