"""One broker with every listener and mechanism, and the clients of others that log in to it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count

import pytest

from rookery.clock import SystemClock
from rookery.testing.certificates import Certificates
from rookery.testing.java import Java
from rookery.testing.tools import ToolHost
from tests.broker.secured import HOST, USER, SecuredBroker, serve_secured
from tests.clients.logins.loginway import MECHANISMS, WRONG_PASSWORD, Credentials, LoginWay
from tests.clients.logins.programs import (
    JavaClient,
    KcatClient,
    TokenJava,
)
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

_numbers = count(1)
ALICE, ANYONE = "alice-", "open-"
"""The prefixes of what the user may use, and of what everyone may use."""


class LoginBroker:
    """A broker whose rules show who a client is: alice and others use different topics."""

    def __init__(self, broker: SecuredBroker, issuer: Issuer, strangers: Certificates) -> None:
        self.broker = broker
        self._issuer = issuer
        self._strangers = strangers

    def topic(self, way: LoginWay) -> str:
        """Return the name of a new topic, which only this way's principal may use."""
        prefix = ANYONE if way.is_anonymous else ALICE
        return f"{prefix}{way}-{next(_numbers)}"

    def credentials(self, way: LoginWay) -> Credentials:
        """Return the right ones."""
        files = self.broker.files
        return Credentials(
            way, self.broker.address(way.listener), files.ca, files.client, self._issuer.token()
        )

    def wrong_credentials(self, way: LoginWay) -> Credentials:
        """Return credentials that the broker must refuse."""
        return Credentials(
            way,
            self.broker.address(way.listener),
            self.broker.files.ca,
            self._strangers.client,
            self._issuer.token(aud="another-audience"),
            WRONG_PASSWORD,
        )


@pytest.fixture(scope="session")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    folder = tmp_path_factory.mktemp("logins")
    issuer = Issuer(SystemClock().now_ms())
    security = {
        "mechanisms": ",".join(MECHANISMS),
        "oauth_jwks": str(issuer.write(folder / "jwks.json")),
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
        "principal_mapping_rules": r"RULE:^CN=([^,]+),.*$/$1/L, DEFAULT",
    }
    strangers = Certificates.make(folder / "strangers", HOST, client=USER)
    with serve_secured(folder, {"authorizer": "acls"}, **security) as broker:
        broker.allow(f"User:{USER}", ALICE)
        broker.allow("User:*", ANYONE)
        yield LoginBroker(broker, issuer, strangers)


@pytest.fixture(scope="session")
def kcat() -> KcatClient:
    """The kcat of this machine."""
    program = shutil.which("kcat")
    if program is None:
        pytest.fail("kcat is not installed; scripts/install-peers does it")
    return KcatClient(program)


@pytest.fixture(scope="session")
def javaclient(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """Kafka's tools in one Java that may read tokens from a file."""
    folder = tmp_path_factory.mktemp("javaclient")
    with ToolHost(TokenJava(java.program, java.libs, folder), folder) as tools:
        yield JavaClient(tools, folder)
