"""Secrets of requests stay out of logs, however much is logged."""

from __future__ import annotations

import base64
import logging
from contextlib import nullcontext
from pathlib import Path

import pytest

from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.clock import SystemClock
from rookery.errors import ApiError, ErrorCode
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.broker.secured import PASSWORD, SASL_MECHANISMS, USER, serve_secured
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

SECRET = b"planted-secret"


def change_credentials(broker: ServedBroker) -> AlterUserScramCredentialsRequest:
    """Set the credential of one user, and fail to set that of another."""
    changes = [
        ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=count, salt=SECRET, salted_password=SECRET
        )
        for name, count in (("good", 4096), ("bad", 1))
    ]
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=changes)
    response = ask(broker.bootstrap, ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    codes = {result.user: result.error_code for result in response.results}
    assert codes == {"good": ErrorCode.NONE, "bad": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    return request


def test_credentials_are_not_logged(broker: ServedBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    request = change_credentials(broker)

    texts = [caplog.text, repr(request), repr(SaslAuthenticateRequest(auth_bytes=SECRET))]
    assert not [text for text in texts if SECRET.decode() in text]


@pytest.mark.parametrize("mechanism", [*SASL_MECHANISMS, "OAUTHBEARER"])
async def test_logins_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    """Neither a secret appears, right or wrong, nor what SCRAM stores of it (CVE-2026-33558)."""
    issuer = Issuer(SystemClock().now_ms())
    settings = {
        "mechanisms": mechanism,
        "oauth_jwks": str(issuer.write(tmp_path / "jwks.json")),
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
    }
    right, wrong = PASSWORD, "planted-wrong-password"
    if mechanism == "OAUTHBEARER":
        right, wrong = issuer.token(), issuer.token(iss="other")
    caplog.set_level(logging.DEBUG)
    with serve_secured(tmp_path, **settings) as broker:
        for secret in (right, wrong):
            sasl = Sasl(mechanism, USER, secret)
            if mechanism == "OAUTHBEARER":
                sasl = Sasl(mechanism, token=secret)
            async with Client(broker.client("sasl_ssl", sasl)) as client:
                with nullcontext() if secret == right else pytest.raises(ApiError):
                    await client.admin.describe_cluster()
        stored = broker.broker.replica.state.security
        keys = [stored.secret]
        for credential in stored.scram[USER].values():
            keys += [credential.salt, credential.stored_key, credential.server_key]

    assert "login" in caplog.text
    assert right not in caplog.text
    assert wrong not in caplog.text
    for key in keys:
        forms = (repr(key)[2:-1], key.hex(), base64.b64encode(key).decode())
        assert not [form for form in forms if form in caplog.text]
