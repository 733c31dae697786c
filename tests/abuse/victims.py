"""The brokers that are attacked: an open one, and a closed one with its users."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

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
from tests.abuse.batches import GOOD
from tests.abuse.samples import TOPIC
from tests.abuse.topics import code_of_produce, produce_request
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

SPARE_SOCKETS = 3
FLAGS = ("--durability", "os", "--tail-bytes", "4194304", "--cache-bytes", "4194304")
ADMIN, WRITER, GUEST = "admin", "writer", "guest"
PASSWORD = "the password of writer and guest"  # noqa: S105 (the fixture's)
OWN_TOPIC = "own"
"""The topic that only the writer may use."""
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"


class Victim(BrokerProcess):
    """A broker that is attacked."""

    @property
    def door(self) -> Door:
        """How good clients reach it."""
        return Door(self.port)

    @staticmethod
    def question(line: Attacker) -> None:
        """Ask what good clients ask."""
        line.ask_simple()

    def resident(self) -> int:
        """Return the bytes of memory that it uses now."""
        return self._status("VmRSS")

    def forget_peak(self) -> int:
        """Begin anew to note the most that it uses; return what it uses now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.resident()

    def peak(self) -> int:
        """Return the most that it has used since."""
        return self._status("VmHWM")

    def sockets(self) -> int:
        """Return how many sockets it holds."""
        count = 0
        for one in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                count += str(one.readlink()).startswith("socket:")
        return count

    def wait_for_sockets(self, count: int) -> None:
        """Return when at most `count` sockets are left, plus a few that other clients use."""
        wait_until(self.sockets, "sockets", accepts=lambda left: left <= count + SPARE_SOCKETS)

    def wait_for_memory(self, limit: int) -> None:
        """Return when the broker uses at most `limit` bytes of memory."""
        wait_until(self.resident, f"at most {limit} bytes", accepts=lambda used: used <= limit)

    def wait_for_words(self, words: str) -> None:
        """Return when the broker has logged `words`."""
        wait_until(self.words, f"{words!r} in the log", accepts=lambda log: words in log)

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise LookupError(name)


class Fortress(Victim):
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
    def door(self) -> Door:
        """A way in for a user with rules for one topic."""
        return Door(self.port, self.stranger.tls, WRITER, PASSWORD)

    @staticmethod
    def question(line: Attacker) -> None:
        """Produce a record."""
        answer = line.ask(produce_request(OWN_TOPIC, GOOD))
        assert answer is not None, "the broker has closed the connection of a good client"
        assert code_of_produce(answer) is ErrorCode.none

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


@dataclass(frozen=True, slots=True)
class Target:
    """A broker and one way to it."""

    name: str
    victim: Victim
    door: Door

    @property
    def is_stranger(self) -> bool:
        """Whether the attacker cannot log in."""
        return self.name == "stranger"

    @property
    def max_frame_bytes(self) -> int:
        """The largest request that is read."""
        return 524_288 if self.is_stranger else 104_857_600


@contextmanager
def open_fortress(folder: Path, flags: tuple[str, ...] = ()) -> Iterator[Fortress]:
    """Start a closed broker with its users and topics."""
    with Fortress(folder, flags) as broker:
        asyncio.run(_prepare(broker))
        yield broker


async def _prepare(broker: Fortress) -> None:
    async with Client(broker.client()) as client:
        for user in (WRITER, GUEST):
            await client.users.set_password(user, PASSWORD)
        for topic in (TOPIC, OWN_TOPIC):
            await client.admin.create_topic(topic, 1, 1)
        rule = AclBinding(
            AclResource.TOPIC,
            PatternType.LITERAL,
            OWN_TOPIC,
            f"User:{WRITER}",
            "*",
            Operation.ALL,
            PermissionType.ALLOW,
        )
        await client.acls.create([rule])
