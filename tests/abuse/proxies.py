"""The proxies that are attacked, each before a broker of its own.

`OpenProxy` serves everyone. `EdgeProxy` ends TLS and logins, and its broker is open. `RelayProxy`
ends TLS alone and passes logins on to a closed broker, whose access rules decide.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rookery.clock import SystemClock
from rookery.testing.certificates import Certificates
from rookery.testing.ports import HOST
from rookery.testing.proxyprocess import ProxyProcess
from tests.abuse.attack import Door
from tests.abuse.brokers import (
    GUEST,
    MECHANISMS,
    MEMBER,
    PASSWORD,
    WRITER,
    Fortress,
    OpenBroker,
    open_broker,
    open_fortress,
)
from tests.abuse.victims import Role, Victim
from tests.security.tokens import AUDIENCE, ISSUER, Issuer


class OpenProxy(Victim):
    """A proxy that serves everyone, without TLS, as its broker does."""

    protocol = "plaintext"
    nodes = 4

    def __init__(
        self, folder: Path, broker: OpenBroker | Fortress, flags: tuple[str, ...] = ()
    ) -> None:
        """Prepare; `proxy` runs it.

        Args:
            folder: the folder for the log.
            broker: the broker that the proxy connects to.
            flags: the flags of the proxy.
        """
        self.broker = broker
        self.proxy = ProxyProcess(
            broker.bootstrap, flags, folder=folder, nodes=self.nodes, protocol=self.protocol
        )
        self.port = self.proxy.port
        self.folder = broker.folder
        self.log = self.proxy.log

    @property
    def pid(self) -> int:
        return self.proxy.pid

    @property
    def doors(self) -> Mapping[Role, Door]:
        return {Role.ANYONE: Door(self.port)}

    @property
    def door(self) -> Door:
        return self.owner

    def words(self, start: int = 0) -> str:
        """Return what the proxy has logged, from a byte on."""
        return self.proxy.words(start)

    def ended(self, within: float) -> int | None:
        """Return the exit status of the proxy or of its broker."""
        return self.broker.ended(within) if self.proxy.is_running else -1

    def stop(self, within: float = 10.0) -> int:
        """Stop both."""
        status = self.proxy.stop()
        return self.broker.stop(within) or (0 if status is None else status)


class NodesProxy(OpenProxy):
    """A proxy that serves everyone, and is the only broker that clients see."""

    nodes = 0


class TlsProxy(OpenProxy):
    """A proxy that ends TLS."""

    def __init__(
        self, folder: Path, broker: OpenBroker | Fortress, flags: tuple[str, ...] = ()
    ) -> None:
        files = Certificates.make(folder / "tls", HOST)
        self.authority = files.ca
        self._tls = ssl.create_default_context(cafile=str(files.ca))
        super().__init__(folder, broker, ("--security-certificate-file", str(files.server), *flags))

    @property
    def stranger(self) -> Door:
        """A way in for clients without a login."""
        return Door(self.port, self._tls)

    @property
    def guest(self) -> Door:
        """A way in for a user to whom no access rule allows anything."""
        return self._door(GUEST)

    @property
    def doors(self) -> Mapping[Role, Door]:
        return {Role.MEMBER: self._door(MEMBER), Role.STRANGER: self.stranger}

    @property
    def door(self) -> Door:
        return self._door(WRITER)

    def _door(self, user: str) -> Door:
        return Door(self.port, self._tls, user, PASSWORD)


class EdgeProxy(TlsProxy):
    """A proxy with one listener: TLS and logins. It has no access rules."""

    protocol = "sasl_ssl"

    def __init__(self, folder: Path, broker: OpenBroker, flags: tuple[str, ...]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        users = folder / "users.toml"
        users.touch(mode=0o600)
        users.write_text(
            "".join(f'[{name}]\npassword = "{PASSWORD}"\n' for name in (MEMBER, WRITER, GUEST))
        )
        keys = Issuer(SystemClock().now_ms()).write(folder / "jwks.json")
        super().__init__(
            folder,
            broker,
            (
                *("--users-file", str(users), "--security-mechanisms", MECHANISMS),
                *("--security-oauth-jwks", str(keys), "--security-oauth-issuer", ISSUER),
                *("--security-oauth-audience", AUDIENCE, *flags),
            ),
        )


class RelayProxy(TlsProxy):
    """A proxy that ends TLS, before a closed broker with TLS of its own."""

    protocol = "ssl"

    def __init__(self, folder: Path, broker: Fortress, flags: tuple[str, ...]) -> None:
        self.fortress = broker
        super().__init__(
            folder,
            broker,
            (
                *("--upstream-security-tls", "--upstream-security-ca-file", str(broker.authority)),
                *flags,
            ),
        )

    def audited(self) -> int:
        """Return the size of the broker's audit file."""
        return self.fortress.audited()

    def wait_for_audit(self) -> None:
        """Return when everything that has happened until now is in that file."""
        self.fortress.wait_for_audit()

    @property
    def doors(self) -> Mapping[Role, Door]:
        return {**super().doors, Role.GUEST: self.guest}


@contextmanager
def open_proxy(folder: Path, flags: tuple[str, ...] = ()) -> Iterator[OpenProxy]:
    """Start an open broker, and an open proxy before it."""
    with open_broker(_folder(folder)) as broker:
        victim = OpenProxy(folder / "proxy", broker, flags)
        with victim.proxy:
            yield victim


@contextmanager
def nodes_proxy(folder: Path, flags: tuple[str, ...] = ()) -> Iterator[NodesProxy]:
    """Start an open broker, and an open proxy with broker nodes before it."""
    with open_broker(_folder(folder)) as broker:
        victim = NodesProxy(folder / "proxy", broker, flags)
        with victim.proxy:
            yield victim


@contextmanager
def edge_proxy(folder: Path, flags: tuple[str, ...] = ()) -> Iterator[EdgeProxy]:
    """Start an open broker, and a closed proxy before it."""
    with open_broker(_folder(folder)) as broker:
        victim = EdgeProxy(folder / "proxy", broker, flags)
        with victim.proxy:
            yield victim


@contextmanager
def relay_proxy(folder: Path, flags: tuple[str, ...] = ()) -> Iterator[RelayProxy]:
    """Start a closed broker, and a proxy before it."""
    with open_fortress(_folder(folder)) as broker:
        victim = RelayProxy(folder / "proxy", broker, flags)
        with victim.proxy:
            yield victim


def _folder(folder: Path) -> Path:
    """Return a new folder for the broker, without any other files."""
    made = folder / "broker"
    made.mkdir()
    return made
