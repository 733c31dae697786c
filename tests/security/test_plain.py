"""SASL PLAIN, for clients and for servers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import ApiError, ConfigError, ErrorCode, ProtocolError
from rookery.security.mechanisms.plain import PlainClient, PlainServer
from rookery.security.sasl import MAX_MESSAGE_BYTES, Login
from rookery.testing.accounts import MemoryAccounts

_ACCOUNTS = MemoryAccounts({"alice": "pencil", "bob": "pencil", "ä": "ö=,"})


def _client(username: str = "alice", password: str = "pencil") -> PlainClient:  # noqa: S107
    return PlainClient(Login(username, password, "unused-nonce"))


@pytest.mark.parametrize(("username", "password"), [("alice", "pencil"), ("ä", "ö=,")])
def test_client_and_server_complete_the_exchange(username: str, password: str) -> None:
    client, server = _client(username, password), PlainServer(_ACCOUNTS)

    last = client.respond(server.respond(client.first()))

    assert (last, client.is_done, server.is_done, server.username) == (b"", True, True, username)


def test_client_message_matches_rfc_4616() -> None:
    client = PlainClient(Login("tim", "tanstaaftanstaaf", "unused-nonce"))

    assert client.first() == b"\0tim\0tanstaaftanstaaf"
    assert not client.is_done


@pytest.mark.parametrize("message", [b"\0alice\0pencil", b"alice\0alice\0pencil"])
def test_server_accepts_an_authorisation_id_equal_to_the_user(message: bytes) -> None:
    server = PlainServer(_ACCOUNTS)

    assert server.respond(message) == b""
    assert server.username == "alice"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\0\0",
        b"alice\0pencil",
        b"\0alice\0",
        b"\0\0pencil",
        b"\0alice\0wrong",
        b"\0nobody\0pencil",
        b"bob\0alice\0pencil",
        b"\0alice\0pencil\0",
        b"\0alice\0pencil\0x",
        b"\0alice\0\xff",
        b"\0alice\0" + b"x" * MAX_MESSAGE_BYTES,
    ],
)
def test_the_server_refuses_everything_else(message: bytes) -> None:
    server = PlainServer(_ACCOUNTS)

    with pytest.raises(ApiError) as caught:
        server.respond(message)

    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not server.is_done
    with pytest.raises(RuntimeError, match="not proved"):
        _ = server.username
    with pytest.raises(ApiError, match="one message"):
        server.respond(b"\0alice\0pencil")


def test_wrong_password_unknown_user_and_foreign_id_are_indistinguishable() -> None:
    texts = set()
    for message in (b"\0alice\0wrong", b"\0nobody\0pencil", b"bob\0alice\0pencil"):
        with pytest.raises(ApiError) as caught:
            PlainServer(_ACCOUNTS).respond(message)
        texts.add(str(caught.value))

    assert texts == {"SASL_AUTHENTICATION_FAILED: invalid credentials"}


def test_challenge_is_refused_by_the_plain_client() -> None:
    client = _client()

    with pytest.raises(ProtocolError, match="no challenge"):
        client.respond(b"more")

    assert not client.is_done


@pytest.mark.parametrize(
    ("username", "password"), [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "a\0b"), ("\ud800", "x")]
)
def test_login_that_cannot_be_encoded_is_a_config_error(username: str, password: str) -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.(username|password): PLAIN"):
        _client(username, password)


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_are_refused(message: bytes) -> None:
    server = PlainServer(_ACCOUNTS)

    with pytest.raises(ApiError):
        server.respond(message)
