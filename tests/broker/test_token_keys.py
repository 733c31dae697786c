"""A broker that fetches the keys of tokens over https: rotated keys, outages, health and log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.broker.process.observe import Observer
from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.clock import SystemClock
from rookery.errors import ApiError
from rookery.security import bearer
from rookery.testing.wait import wait_until
from tests.broker.secured import SecuredBroker, serve_secured
from tests.security.keyserver import KeyServer, send, serve_keys
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

FAILS = "refresh of the keys of tokens fails"
WORKS = "refresh of the keys of tokens works again"


@pytest.fixture
def issuer() -> Issuer:
    return Issuer(SystemClock().now_ms())


@pytest.fixture
def server(tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyServer]:
    # A broker tries again every second, instead of every ten.
    monkeypatch.setattr(bearer, "RETRY_MS", 0)
    with serve_keys(tmp_path) as keys:
        monkeypatch.setenv("SSL_CERT_FILE", str(keys.authority))
        keys.publish(issuer.jwks())
        yield keys


def settings(server: KeyServer) -> dict[str, Any]:
    return {
        "mechanisms": "OAUTHBEARER",
        "oauth_jwks": server.url,
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
    }


async def can_log_in(broker: SecuredBroker, token: str) -> bool:
    sasl = Sasl("OAUTHBEARER", token=token)
    async with Client(broker.client("sasl_ssl", sasl)) as client:
        try:
            await client.admin.describe_cluster()
        except ApiError:
            return False
        return True


async def test_rotated_keys_are_fetched(tmp_path: Path, server: KeyServer, issuer: Issuer) -> None:
    rotated = Issuer(SystemClock().now_ms(), prefix="second-")
    with serve_secured(tmp_path, **settings(server)) as broker:
        assert await can_log_in(broker, issuer.token())
        before = server.requests
        server.publish(rotated.jwks())

        assert not await can_log_in(broker, rotated.token())
        wait_until(lambda: server.requests > before, "the broker fetches the keys")
        # Each SASL listener has keys of its own; the refused one fetches them.
        while not await can_log_in(broker, rotated.token()):
            pass
        assert not await can_log_in(broker, issuer.token())


async def test_outage_of_the_server_is_reported_once(
    tmp_path: Path, server: KeyServer, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    with serve_secured(tmp_path, **settings(server)) as broker:
        warning = Observer(broker.broker).warnings()["keys of tokens"]
        assert warning() == ""
        server.answer = lambda handler: send(handler, b"", 503)
        before = server.requests
        # A token with an unknown key makes the broker ask again, and again.
        assert not await can_log_in(broker, issuer.token(key_id="unknown"))
        wait_until(lambda: server.requests >= before + 2, "the broker asks twice")

        assert "503" in warning()
        assert await can_log_in(broker, issuer.token())

        server.publish(issuer.jwks())
        wait_until(lambda: warning() == "", "health reports no problem")
        wait_until(lambda: WORKS in caplog.text, "the log reports the end")
    assert caplog.text.count(FAILS) == 1
    assert caplog.text.count(WORKS) == 1


async def test_broker_starts_while_the_server_is_down(
    tmp_path: Path, server: KeyServer, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = lambda handler: send(handler, b"<html>maintenance</html>")
    with serve_secured(tmp_path, **settings(server)) as broker:
        assert "tokens are refused until their keys can be read" in caplog.text
        assert not await can_log_in(broker, issuer.token())

        server.publish(issuer.jwks())
        warning = Observer(broker.broker).warnings()["keys of tokens"]
        wait_until(lambda: warning() == "", "the keys are read")
        assert await can_log_in(broker, issuer.token())
