"""The messages of OAUTHBEARER."""

from __future__ import annotations

import pytest

from rookery.errors import ApiError, ConfigError
from rookery.security.sasl import Login, ServerExchange, open_client, open_server
from rookery.testing.accounts import MemoryAccounts


@pytest.fixture
def server() -> ServerExchange:
    return open_server("OAUTHBEARER", MemoryAccounts({"alice": "token"}), "nonce")


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer token\x01\x01",
        b"n,a=alice,\x01auth=Bearer token\x01\x01",
        b"n,,\x01auth=bearer  token\x01traceId=7\x01\x01",
        b"n,,\x01host=broker\x01auth=Bearer token\x01\x01",
    ],
)
def test_valid_message_is_accepted(server: ServerExchange, message: bytes) -> None:
    assert server.respond(message) == b""
    assert (server.is_done, server.username) == (True, "alice")


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,auth=Bearer token\x01\x01",
        b"y,,\x01auth=Bearer token\x01\x01", b"n,,\x01auth=Bearer token\x01",
        b"n,,\x01auth=Basic token\x01\x01", b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer token\x01auth=Bearer token\x01\x01",
        b"n,a=bob,\x01auth=Bearer token\x01\x01", b"\xff",
    ],
)  # fmt: skip
def test_malformed_message_is_refused(server: ServerExchange, message: bytes) -> None:
    with pytest.raises(ApiError):
        server.respond(message)
    assert not server.is_done


def test_refused_token_is_reported_as_an_object_first(server: ServerExchange) -> None:
    assert server.respond(b"n,,\x01auth=Bearer wrong\x01\x01") == b'{"status":"invalid_token"}'
    with pytest.raises(ApiError, match="the token is invalid"):
        server.respond(b"\x01")
    assert not server.is_done


def test_second_token_is_refused(server: ServerExchange) -> None:
    server.respond(b"n,,\x01auth=Bearer wrong\x01\x01")
    with pytest.raises(ApiError, match="one token only"):
        server.respond(b"n,,\x01auth=Bearer token\x01\x01")


def test_client_answers_a_refusal() -> None:
    client = open_client("OAUTHBEARER", Login("", "token", "nonce"))
    assert client.first() == b"n,,\x01auth=Bearer token\x01\x01"
    assert client.respond(b'{"status":"invalid_token"}') == b"\x01"
    assert not client.is_done


@pytest.mark.parametrize("token", ["", "two words", "line\n", "\x01"])
def test_client_refuses_text_that_is_not_a_token(token: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.token"):
        open_client("OAUTHBEARER", Login("", token, "nonce"))
