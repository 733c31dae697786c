"""PLAIN (RFC 4616): name and password in plain text, so it is safe only over TLS."""

from __future__ import annotations

from rookery.errors import ProtocolError
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


class PlainServer:
    """Checks one message of authorization id, name and password."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._is_used = False
        self._username: str | None = None
        self.claimed_name = ""
        self.has_delegation_token = False
        self.expires_ms = 0

    @property
    def is_done(self) -> bool:
        """Whether the client has proved who it is."""
        return self._username is not None

    @property
    def username(self) -> str:
        """Return the authenticated user name."""
        if self._username is None:
            raise RuntimeError("the client has not proved who it is")
        return self._username

    def respond(self, message: bytes) -> bytes:
        """Check the client's message; an empty response means success."""
        if self._is_used:
            raise refusal("PLAIN has one message only")
        self._is_used = True
        tokens = read_response(message).split("\0")
        if len(tokens) != 3:
            raise refusal(f"PLAIN needs authorization id, name and password, not {len(tokens)}")
        authorization_id, username, password = tokens
        if not username or not password:
            raise refusal("PLAIN needs a name and a password")
        self.claimed_name = username
        self._check(authorization_id, username, password)
        self._username = username
        return b""

    def _check(self, authorization_id: str, username: str, password: str) -> None:
        is_right = self._accounts.has_password(username, password)
        # A correct password must not allow acting for another user (CVE-2017-12610).
        if not is_right or authorization_id not in {"", username}:
            raise refusal()
