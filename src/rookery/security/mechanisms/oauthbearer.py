r"""OAUTHBEARER (RFC 7628) as Kafka has it (KIP-255): the client sends a token, usually a JWT.

    client                                              server
      n,,\x01auth=Bearer <token>\x01\x01         ──►
                                                 ◄──   empty: accepted
                                                 ◄──   {"status":"invalid_token"}: refused
      \x01                                       ──►   the login fails

Safe only over TLS: an eavesdropper could use the token.
"""

from __future__ import annotations

import re
from typing import Final

from rookery.errors import ApiError, ConfigError
from rookery.security.exchange import SingleMessageServer
from rookery.security.sasl import Accounts, Login, read_challenge, read_response, refusal

NAMES = ("OAUTHBEARER",)

_TOKEN: Final = r"[-._~+/A-Za-z0-9]+=*"  # noqa: S105 (a pattern)
_PAIR: Final = r"[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01"
_FIRST: Final = re.compile(rf"n,(?:a=((?:[^=,\0]|=2C|=3D)+))?,\x01((?:{_PAIR})+)\x01")
_AUTH: Final = re.compile(rf"bearer +({_TOKEN})", re.IGNORECASE)
_REFUSED: Final = b'{"status":"invalid_token"}'
_FAREWELL: Final = "\x01"


def client(_name: str, login: Login) -> BearerClient:
    """Begin an exchange as the client; the password is the token."""
    return BearerClient(login)


def server(_name: str, accounts: Accounts, _nonce: str) -> BearerServer:
    """Begin an exchange as the server."""
    return BearerServer(accounts)


class BearerClient:
    """Sends the token; an empty response means that it was accepted."""

    def __init__(self, login: Login) -> None:
        if re.fullmatch(_TOKEN, login.password) is None:
            # The token itself stays out of the message.
            raise ConfigError("sasl.token: OAUTHBEARER needs a token, such as a JWT")
        self._login = login
        self.is_done = False

    def first(self) -> bytes:
        """Return the message with the token; the client acts as itself."""
        return f"n,,\x01auth=Bearer {self._login.password}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Accept the empty response; answer a refusal so that the server ends the login."""
        if read_challenge(challenge):
            return _FAREWELL.encode()
        self.is_done = True
        return b""


class BearerServer(SingleMessageServer):
    """Passes one token to the accounts.

    The claimed name stays empty: the name in a token that is not verified means nothing.
    """

    def __init__(self, accounts: Accounts) -> None:
        super().__init__()
        self._accounts = accounts
        self._refusal: ApiError | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the token; a refusal is an error object first, and a failed login afterwards."""
        text = read_response(message)
        if self._refusal is not None and text == _FAREWELL:
            raise self._refusal
        self._begin("OAUTHBEARER has one token only")
        authorization_id, token = _parse(text)
        try:
            accepted = self._accounts.check_token(token)
        except ApiError as error:
            self._refusal = error
            return _REFUSED
        if authorization_id not in {"", accepted.username}:
            raise refusal("the authorization id is not the user of the token")
        return self._accept(accepted.username, accepted.expires_ms)


def _parse(text: str) -> tuple[str, str]:
    """Return the authorization id and the token of the client's first message."""
    match = _FIRST.fullmatch(text)
    if match is None:
        raise refusal("the OAUTHBEARER message is malformed")
    pairs = [pair.partition("=") for pair in match[2].split("\x01") if pair]
    values = [value for key, _, value in pairs if key.lower() == "auth"]
    auth = _AUTH.fullmatch(values[0]) if len(values) == 1 else None
    if auth is None:
        raise refusal("the OAUTHBEARER message has no bearer token")
    return (match[1] or "").replace("=2C", ",").replace("=3D", "="), auth[1]
