"""Clients of others log in: every mechanism, TLS and client certificates, right and wrong."""

from __future__ import annotations

import re
from typing import Protocol

import pytest

from tests.clients.logins.conftest import LoginBroker
from tests.clients.logins.loginway import MECHANISMS, REFUSED_WAYS, WAYS, Credentials, LoginWay
from tests.clients.logins.pythonclients import AiokafkaClient, ConfluentClient, KafkaPythonClient

AUTHENTICATION = re.compile("authenticat|credentials|oauth response", re.IGNORECASE)
TLS = re.compile("ssl|tls|certificate|handshake", re.IGNORECASE)
CLOSED = re.compile("Connection at .* closed|socket disconnected")
TIMEOUT = re.compile("timeout|timed out|deadline", re.IGNORECASE)

SILENT = {
    ("AiokafkaClient", "OAUTHBEARER"): "it takes the refusal for success, and finds itself cut off",
    ("AiokafkaClient", ""): "it reports any end of a connection alike",
    **{
        ("KafkaPythonClient", name): "it drops an answer that arrives with the end of a connection"
        for name in MECHANISMS
    },
}
"""Clients that do not report why a login failed, by mechanism, and why."""


class LoginClient(Protocol):
    """A client of others; it fails with an assertion if something does not work."""

    def produce(self, login: Credentials, topic: str, value: str) -> None:
        """Produce one record; the topic is created with it."""

    def consume(self, login: Credentials, topic: str) -> str:
        """Return the first value of a topic, read as a member of a group of the topic's name."""

    def refusal(self, login: Credentials, topic: str) -> str:
        """Return what the client reports about a login that the broker refuses."""


PYTHON_CLIENTS = [
    pytest.param(kind(), id=kind.__name__)
    for kind in (ConfluentClient, KafkaPythonClient, AiokafkaClient)
]


def check_login(client: LoginClient, logins: LoginBroker, way: LoginWay) -> None:
    topic = logins.topic(way)
    client.produce(logins.credentials(way), topic, "hello")
    assert client.consume(logins.credentials(way), topic) == "hello"


def check_refusal(client: LoginClient, logins: LoginBroker, way: LoginWay) -> None:
    text = client.refusal(logins.wrong_credentials(way), logins.topic(way))
    is_silent = (type(client).__name__, way.mechanism) in SILENT
    cause = AUTHENTICATION if way.mechanism else TLS
    assert cause.search(text) or (is_silent and CLOSED.search(text)), text
    assert not TIMEOUT.search(text), text


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_python_client_logs_in(client: LoginClient, logins: LoginBroker, way: LoginWay) -> None:
    check_login(client, logins, way)


@pytest.mark.parametrize("way", REFUSED_WAYS, ids=str)
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_python_client_reports_a_refused_login(
    client: LoginClient, logins: LoginBroker, way: LoginWay
) -> None:
    check_refusal(client, logins, way)
