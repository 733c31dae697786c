"""Logins of every mechanism, right and wrong, at the debug level: no secret is written anywhere."""

from __future__ import annotations

import asyncio
import base64
import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.clock import SystemClock
from rookery.errors import ApiError
from rookery.security.tls import ClientTls
from rookery.testing.broker import BrokerProcess
from tests.broker.secured import SASL_MECHANISMS
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

USER, PASSWORD, WRONG = "carol", "planted-right-password", "planted-wrong-password"
SALT, HTTP_TOKEN = b"planted-salt-of-carol", "planted-token-of-http"
PAGES = ("/", "/metrics", "/health/live", "/health/ready", "/none")


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(SystemClock().now_ms())


@pytest.fixture
def broker(tmp_path: Path, issuer: Issuer) -> Iterator[BrokerProcess]:
    jwks, token = issuer.write(tmp_path / "jwks.json"), tmp_path / "http-token"
    token.write_text(HTTP_TOKEN)
    token.chmod(0o600)
    flags = [
        "--secure", "--durability", "os", "--log-level", "debug",
        "--audit-file", str(tmp_path / "audit.log"), "--http-token-file", str(token),
        "--security-mechanisms", ",".join([*SASL_MECHANISMS, "OAUTHBEARER"]),
        "--security-oauth-jwks", str(jwks), "--security-oauth-issuer", ISSUER,
        "--security-oauth-audience", AUDIENCE,
    ]  # fmt: skip
    with BrokerProcess(tmp_path / "data", flags=flags) as process:
        yield process


def add_user(broker: BrokerProcess, admin_password: str) -> None:
    folder = broker.folder / "security"
    client = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(folder / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": admin_password,
        }
    )
    changes = [
        UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode(), SALT
        )
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for change in changes:
        for result in client.alter_user_scram_credentials([change]).values():
            result.result(20)


async def can_log_in(broker: BrokerProcess, sasl: Sasl) -> bool:
    tls = ClientTls(ca_file=str(broker.folder / "security" / "ca.pem"))
    settings = ClientSettings(bootstrap=broker.bootstrap, sasl=sasl, tls=tls)
    async with Client(settings) as client:
        try:
            await client.admin.describe_cluster()
        except ApiError:
            return False
        return True


async def log_in(broker: BrokerProcess, tokens: tuple[str, str]) -> None:
    """Log in by every mechanism, once with the right secret and once with a wrong one."""
    for mechanism in SASL_MECHANISMS:
        assert await can_log_in(broker, Sasl(mechanism, USER, PASSWORD))
        assert not await can_log_in(broker, Sasl(mechanism, USER, WRONG))
    results = [await can_log_in(broker, Sasl("OAUTHBEARER", token=token)) for token in tokens]
    assert results == [True, False]


def read_pages(broker: BrokerProcess) -> list[str]:
    """Return the pages as a client with the token, and one without it, gets them."""
    [address] = broker.http
    pages = []
    for path in PAGES:
        for token in (HTTP_TOKEN, WRONG):
            connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            pages.append(connection.getresponse().read().decode())
            connection.close()
    return pages


def forms(secret: str | bytes) -> set[str]:
    """Return the ways in which a secret could be written."""
    data = secret.encode() if isinstance(secret, str) else secret
    text = repr(data)[2:-1]
    return {text, base64.b64encode(data).decode().rstrip("="), data.hex()}


def test_secrets_of_logins_are_written_nowhere(
    broker: BrokerProcess, issuer: Issuer, tmp_path: Path
) -> None:
    security = broker.folder / "security"
    admin_password = (security / "admin-password").read_text().strip()
    tokens = (issuer.token(sub=USER), issuer.token(sub=USER, aud="another"))
    add_user(broker, admin_password)
    asyncio.run(log_in(broker, tokens))

    written = [*read_pages(broker)]
    broker.stop()
    written += [broker.words(), (tmp_path / "audit.log").read_text()]

    assert broker.words().count("login of User:carol") == 4
    assert "rookery_" in "".join(written)
    signatures = [token.rpartition(".")[2] for token in tokens]
    keys = [line for line in (security / "ca-key.pem").read_text().splitlines() if "-" not in line]
    secrets: list[str | bytes] = [
        PASSWORD,
        WRONG,
        SALT,
        HTTP_TOKEN,
        admin_password,
        *tokens,
        *signatures,
        *keys,
    ]
    leaked = [
        secret
        for secret in secrets
        if any(form in text for form in forms(secret) for text in written)
    ]
    assert leaked == []
