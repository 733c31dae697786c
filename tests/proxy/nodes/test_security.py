"""Logins end at broker nodes, and never pass to one of several connections."""

from __future__ import annotations

import pytest

from rookery.errors import ConfigError, ErrorCode
from rookery.service.listen.listenersettings import ListenerSecurity
from rookery.testing.certificates import Certificates
from rookery.testing.servedbroker import ask
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from tests.broker.secured import SecuredBroker
from tests.proxy.test_security import (
    Principals,
    broker,
    client,
    edge_login,
    files,
    produce,
    scram_upstream,
    served,
    users,
)

__all__ = ["broker", "files", "users"]


def test_proxy_logs_in_at_every_broker(broker: SecuredBroker) -> None:
    security = scram_upstream(broker)
    with served(broker.address("sasl_ssl"), nodes="proxy", upstream_security=security) as proxy:
        produce(client(proxy))


def test_logins_end_at_the_proxy(broker: SecuredBroker, files: Certificates, users: str) -> None:
    note = Principals()
    with served(
        broker.address("sasl_ssl"),
        "sasl_ssl",
        note,
        nodes="proxy",
        users_file=users,
        security=ListenerSecurity(certificate_file=str(files.server)),
        upstream_security=scram_upstream(broker),
    ) as proxy:
        produce(client(proxy, **edge_login(files)))

    assert note.seen == {"User:erin"}


def test_upstream_that_wants_a_login_needs_credentials(broker: SecuredBroker) -> None:
    with (
        pytest.raises(ConfigError, match=r"wants a login by .*; set upstream_security.mechanism"),
        served(broker.address("sasl_plaintext"), nodes="proxy"),
    ):
        pass


def test_login_does_not_pass(broker: SecuredBroker) -> None:
    with served(broker.address("plaintext"), nodes="proxy") as proxy:
        request = SaslHandshakeRequest(mechanism="PLAIN")
        answer = ask(proxy.bootstrap, SASL_HANDSHAKE, 1, request)

    assert answer.error_code is ErrorCode.ILLEGAL_SASL_STATE
