"""Secrets of requests stay out of logs, however much is logged."""

from __future__ import annotations

import logging

import pytest

from rookery.errors import ErrorCode
from rookery.testing.served import ServedBroker, ask
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.sasl_authenticate import SaslAuthenticateRequest

SECRET = b"planted-secret"


def test_credentials_are_not_logged(broker: ServedBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
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
    texts = [caplog.text, repr(request), repr(SaslAuthenticateRequest(auth_bytes=SECRET))]
    assert not [text for text in texts if SECRET.decode() in text]
