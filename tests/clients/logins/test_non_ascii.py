"""Logins whose name or password is not ASCII, with other projects' clients, as on Kafka.

Kafka hashes a password as its UTF-8 bytes, without SASLprep, and so does Rookery. Kafka accepts
only ASCII names in SCRAM, although it stores credentials for others; Rookery accepts all names.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import pbkdf2_hmac
from itertools import count

import pytest

from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.errors import ApiError, ErrorCode
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.clients.logins.conftest import LoginBroker
from tests.clients.logins.loginway import Credentials, LoginWay
from tests.clients.logins.programs import JavaClient
from tests.clients.logins.test_logins import PYTHON_CLIENTS, LoginClient

NAME, WORD = "žofie", "heslo-ž-密"
DECOMPOSED = "heslo-z\u030c-密"
"""It looks like the password; SASLprep would make them the same."""
PREFIX = "zofie-"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_numbers = count(1)


@pytest.fixture(scope="module")
def zofie(logins: LoginBroker) -> LoginBroker:
    logins.broker.add_user(NAME, WORD)
    logins.broker.allow(f"User:{NAME}", PREFIX)
    return logins


def credentials(logins: LoginBroker, mechanism: str) -> Credentials:
    way = LoginWay("sasl_ssl", mechanism)
    return replace(logins.credentials(way), user=NAME, password=WORD)


def check(client: LoginClient, logins: LoginBroker, mechanism: str) -> None:
    login, topic = credentials(logins, mechanism), f"{PREFIX}{next(_numbers)}"
    client.produce(login, topic, "hello")
    assert client.consume(login, topic) == "hello"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_python_client_logs_in(client: LoginClient, zofie: LoginBroker, mechanism: str) -> None:
    check(client, zofie, mechanism)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_logs_in(javaclient: JavaClient, zofie: LoginBroker, mechanism: str) -> None:
    check(javaclient, zofie, mechanism)


def add_kafka_users(bootstrap: str, passwords: dict[str, str]) -> None:
    upsertions = [
        ScramCredentialUpsertion(
            name=name,
            mechanism=1,
            iterations=4096,
            salt=b"salt",
            salted_password=pbkdf2_hmac("sha256", word.encode(), b"salt", 4096),
        )
        for name, word in passwords.items()
    ]
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
    answer = ask(bootstrap, ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    assert {result.error_code for result in answer.results} == {ErrorCode.NONE}
    users = [UserName(name=name) for name in passwords]
    listed = DescribeUserScramCredentialsRequest(users=users)
    # A broker of Kafka learns of them some time after its controller.
    wait_until(
        lambda: {
            result.error_code
            for result in ask(bootstrap, DESCRIBE_USER_SCRAM_CREDENTIALS, 0, listed).results
        },
        accepts=lambda codes: codes == {ErrorCode.NONE},
    )


@pytest.fixture(scope="module")
def addresses(zofie: LoginBroker, kafka_secure: KafkaServer) -> tuple[str, str]:
    """Our listener and Kafka's, for the same users."""
    names = (NAME, "ascii", "a,b=c")
    for name in names:
        zofie.broker.add_user(name, WORD)
    add_kafka_users(kafka_secure.bootstrap, dict.fromkeys(names, WORD))
    return zofie.broker.address("sasl_plaintext"), kafka_secure.address("SASL_PLAINTEXT")


async def can_log_in(address: str, name: str, word: str) -> bool:
    sasl = Sasl("SCRAM-SHA-256", name, word)
    try:
        async with Client(ClientSettings(bootstrap=address, sasl=sasl)) as client:
            await client.admin.describe_cluster()
    except ApiError as error:
        if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            return False
        raise
    return True


@pytest.mark.parametrize(
    ("name", "word", "expected"),
    [
        ("ascii", WORD, (True, True)),
        ("ascii", DECOMPOSED, (False, False)),
        ("a,b=c", WORD, (True, True)),
        (NAME, WORD, (True, False)),
    ],
)
async def test_scram_login_is_that_of_kafka_except_for_the_name(
    addresses: tuple[str, str], name: str, word: str, expected: tuple[bool, bool]
) -> None:
    ours, theirs = addresses
    assert (await can_log_in(ours, name, word), await can_log_in(theirs, name, word)) == expected
