"""All SASL mechanisms accept and refuse passwords alike."""

from __future__ import annotations

import pytest

from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.security.sasl import (
    ClientExchange,
    Login,
    ServerExchange,
    mechanisms,
    open_client,
    open_server,
)
from rookery.testing.accounts import MemoryAccounts

_ACCOUNTS = MemoryAccounts({"alice": "pencil"})
_LOGIN = Login("alice", "pencil", "client-nonce")


def _run(client: ClientExchange, server: ServerExchange) -> None:
    message = client.first()
    while not client.is_done:
        message = client.respond(server.respond(message))


def test_offered_mechanisms_are_those_in_the_folder() -> None:
    assert list(mechanisms()) == ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.parametrize("name", mechanisms())
def test_every_mechanism_accepts_the_right_password(name: str) -> None:
    client, server = open_client(name, _LOGIN), open_server(name, _ACCOUNTS, "server-nonce")

    _run(client, server)

    assert server.is_done
    assert server.username == "alice"


@pytest.mark.parametrize("name", mechanisms())
def test_every_mechanism_refuses_a_wrong_password(name: str) -> None:
    client = open_client(name, Login("alice", "wrong", "client-nonce"))
    server = open_server(name, _ACCOUNTS, "server-nonce")

    with pytest.raises(ApiError) as caught:
        _run(client, server)

    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not server.is_done


@pytest.mark.parametrize("name", mechanisms())
def test_every_mechanism_hides_its_secrets(name: str) -> None:
    client, server = open_client(name, _LOGIN), open_server(name, _ACCOUNTS, "server-nonce")

    assert "pencil" not in f"{client!r} {server!r} {_LOGIN!r}"
    assert "client-nonce" not in repr(_LOGIN)


def test_an_unknown_mechanism_is_refused_on_both_sides() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.mechanism: 'GSSAPI'.*PLAIN, SCRAM"):
        open_client("GSSAPI", _LOGIN)
    with pytest.raises(ApiError) as caught:
        open_server("GSSAPI", _ACCOUNTS, "server-nonce")
    assert caught.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
