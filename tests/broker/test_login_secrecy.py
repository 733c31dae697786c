"""A failed login does not reveal whether the user exists."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import pbkdf2_hmac
from typing import NamedTuple

import pytest

from rookery.errors import ErrorCode
from rookery.security import credential
from rookery.testing.servedbroker import ask
from rookery.wire.codec import read_response
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from tests.broker.secured import SecuredBroker, serve_secured
from tests.sweep.asking import Line, frame

MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
TOOL_SALT = b"1k2j5p8q3m7n4r6s9t0uvwxyza"
"""As long as the salts of Kafka's tools, and of the same characters."""


class Stored(NamedTuple):
    """A credential as an administrator sets it."""

    mechanism: str
    iterations: int
    salt: bytes
    password: str


USERS = {
    "few": [
        Stored("SCRAM-SHA-256", 4096, b"a" * 16, "one"),
        Stored("SCRAM-SHA-512", 4096, b"b" * 16, "two"),
    ],
    "many": [Stored("SCRAM-SHA-256", 16_384, TOOL_SALT, "one")],
    "other": [Stored("SCRAM-SHA-512", 8192, b"c" * 32, "two")],
}
STRANGERS = [f"stranger-{number}" for number in range(60)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with serve_secured(tmp_path_factory.mktemp("secrecy")) as broker:
        for user, credentials in USERS.items():
            for each in credentials:
                set_password(broker, user, each)
        yield broker


def set_password(broker: SecuredBroker, user: str, stored: Stored) -> None:
    number, hash_name = MECHANISMS[stored.mechanism]
    salted = pbkdf2_hmac(hash_name, stored.password.encode(), stored.salt, stored.iterations)
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=number,
        iterations=stored.iterations,
        salt=stored.salt,
        salted_password=salted,
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    answer = ask(broker.address("plaintext"), ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    assert [result.error_code for result in answer.results] == [ErrorCode.NONE]


def authenticate(broker: SecuredBroker, mechanism: str, message: bytes) -> SaslAuthenticateResponse:
    """Return the answer to the first message of a login."""
    with Line(int(broker.address("sasl_plaintext").rpartition(":")[2])) as line:
        line.send(frame(SASL_HANDSHAKE, 1, 1, SaslHandshakeRequest(mechanism=mechanism)))
        assert line.read() is not None
        line.send(frame(SASL_AUTHENTICATE, 2, 2, SaslAuthenticateRequest(auth_bytes=message)))
        answer = line.read()
        assert answer is not None
        return read_response(SASL_AUTHENTICATE, 2, answer)


def challenge(broker: SecuredBroker, mechanism: str, user: str) -> tuple[int, bytes]:
    """Return the iteration count and the salt that a user appears to have."""
    first = f"n,,n={user},r=0123456789".encode()
    answer = authenticate(broker, mechanism, first)
    assert answer.error_code is ErrorCode.NONE
    _, salt, iterations = bytes(answer.auth_bytes).decode().split(",")
    return int(iterations.removeprefix("i=")), base64.b64decode(salt.removeprefix("s="))


def form(iterations: int, salt: bytes) -> tuple[int, int | str]:
    is_text = len(salt) in range(23, 27) and salt.isalnum()
    return iterations, "text" if is_text else len(salt)


def plain(broker: SecuredBroker, user: str, password: str) -> ErrorCode:
    return authenticate(broker, "PLAIN", f"\0{user}\0{password}".encode()).error_code


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_unknown_users_have_the_challenges_of_known_ones(
    secured: SecuredBroker, mechanism: str
) -> None:
    in_use = {
        form(each.iterations, each.salt)
        for credentials in USERS.values()
        for each in credentials
        if each.mechanism == mechanism
    }
    known = {form(*challenge(secured, mechanism, user)) for user in USERS}
    challenges = {user: challenge(secured, mechanism, user) for user in STRANGERS}

    assert known <= in_use
    assert {form(*each) for each in challenges.values()} == in_use
    assert len({salt for _, salt in challenges.values()}) == len(STRANGERS)
    assert all(challenge(secured, mechanism, user) == challenges[user] for user in STRANGERS[:3])


def test_a_wrong_password_costs_as_much_for_an_unknown_user(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: dict[str, list[tuple[str, int]]] = defaultdict(list)
    salted_password = credential.salted_password

    def count(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        costs[password].append((mechanism, iterations))
        return salted_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(credential, "salted_password", count)
    users = [*USERS, *STRANGERS]
    with ThreadPoolExecutor(len(users)) as threads:
        codes = set(threads.map(lambda user: plain(secured, user, f"not of {user}"), users))

    assert codes == {ErrorCode.SASL_AUTHENTICATION_FAILED}
    hashed = {user: tuple(sorted(costs[f"not of {user}"])) for user in users}
    known = {tuple(sorted((e.mechanism, e.iterations) for e in each)) for each in USERS.values()}
    assert {hashed[user] for user in USERS} == known
    assert {hashed[user] for user in STRANGERS} == known


@pytest.mark.parametrize(
    ("user", "password", "is_right"),
    [
        ("few", "one", True),
        ("few", "two", True),
        ("few", "three", False),
        ("many", "one", True),
        ("many", "two", False),
        ("other", "two", True),
        ("nobody", "one", False),
    ],
)
def test_plain_accepts_the_password_of_any_mechanism(
    secured: SecuredBroker, user: str, password: str, *, is_right: bool
) -> None:
    wanted = ErrorCode.NONE if is_right else ErrorCode.SASL_AUTHENTICATION_FAILED
    assert plain(secured, user, password) is wanted
