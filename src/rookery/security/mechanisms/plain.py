"""PLAIN (RFC 4616): name and password in plain text, so it is safe only over TLS."""

from __future__ import annotations

from rookery.errors import ProtocolError
from rookery.security.exchange import SingleMessageServer
from rookery.security.sasl import (
    Accounts,
    Login,
    check_login,
    read_challenge,
    read_response,
    refusal,
)

NAMES = ("PLAIN",)


def client(_name: str, login: Login) -> PlainClient:
    """Begin an exchange as the client."""
    return PlainClient(login)


def server(_name: str, accounts: Accounts, _nonce: str) -> PlainServer:
    """Begin an exchange as the server."""
    return PlainServer(accounts)


class PlainClient:
    """Sends name and password; an empty response means that they were accepted."""

    def __init__(self, login: Login) -> None:
        check_login("PLAIN", login)
        self._login = login
        self.is_done = False

    def first(self) -> bytes:
        """Return the only message; the authorization id is empty, so the client acts as itself."""
        return f"\0{self._login.username}\0{self._login.password}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Accept the server's empty response."""
        if read_challenge(challenge):
            raise ProtocolError("PLAIN has no challenge, but the server sent one")
        self.is_done = True
        return b""


class PlainServer(SingleMessageServer):
    """Checks one message of authorization id, name and password."""

    def __init__(self, accounts: Accounts) -> None:
        super().__init__()
        self._accounts = accounts

    def respond(self, message: bytes) -> bytes:
        """Check the client's message; an empty response means success."""
        self._begin("PLAIN has one message only")
        tokens = read_response(message).split("\0")
        if len(tokens) != 3:
            raise refusal(f"PLAIN needs authorization id, name and password, not {len(tokens)}")
        authorization_id, username, password = tokens
        if not username or not password:
            raise refusal("PLAIN needs a name and a password")
        self.claimed_name = username
        self._check(authorization_id, username, password)
        return self._accept(username)

    def _check(self, authorization_id: str, username: str, password: str) -> None:
        is_right = self._accounts.has_password(username, password)
        # A correct password must not allow acting for another user (CVE-2017-12610).
        if not is_right or authorization_id not in {"", username}:
            raise refusal()
