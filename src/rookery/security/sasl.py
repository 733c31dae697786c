"""The port for SASL mechanisms, sans-IO: bytes in, bytes out, independent of the transport.

A mechanism is a module in `mechanisms` with

    NAMES: tuple[str, ...]                                     what SaslHandshake calls it
    def client(name: str, login: Login) -> ClientExchange      our side towards a broker
    def server(name: str, accounts: Accounts, nonce: str) -> ServerExchange

To add a mechanism, add a file: the folder is scanned. Mechanisms are pure: the caller supplies
nonces.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Final, Protocol, cast

from rookery.errors import ApiError, ConfigError, ErrorCode, ProtocolError
from rookery.security.credential import ScramCredential

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""The maximum size of a message that either side reads, because the peer is not trusted yet."""


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials for a broker. Each exchange needs a fresh nonce: `random.token(18).hex()`."""

    username: str
    password: str = field(repr=False)
    """The password; for OAUTHBEARER the token."""
    nonce: str = field(repr=False)
    is_token: bool = False
    """Whether they are the id and the HMAC of a delegation token; for SCRAM."""


@dataclass(frozen=True, slots=True)
class AcceptedToken:
    """The user of a valid bearer token."""

    username: str
    expires_ms: int = 0
    """The wall-clock time at which it expires; 0 for never."""


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """What a client that logs in with a delegation token must prove, and who it then is."""

    scram: ScramCredential
    owner: str
    """The name of the user that the token stands for."""
    expires_ms: int
    """The wall-clock time at which the token expires."""


class Accounts(Protocol):
    """A server's user database. It answers from memory: an exchange never waits.

    Each answer can raise `Unavailable` if the database may be out of date.
    """

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return the user's credential for that mechanism, or None if there is none."""

    def delegation_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return what a delegation token needs, or None if it does not exist or has expired."""

    def decoy(self, mechanism: str, username: str, *, is_token: bool) -> ScramCredential:
        """Return the credential that an unknown user, or token, appears to have."""

    def has_password(self, username: str, password: str) -> bool:
        """Return whether the password is correct; hashes as much for an unknown user."""

    def check_token(self, token: str) -> AcceptedToken:
        """Return the user of a bearer token.

        Raises:
            ApiError: SASL_AUTHENTICATION_FAILED. The text is safe to send.
        """


class ClientExchange(Protocol):
    """One login, from the client's side.

    Send what `first` returns; give each answer to `respond` and, unless `is_done` is true by then,
    send what it returns. `respond` may take up to a second of CPU: call it in a thread.
    A failed exchange stays failed.
    """

    @property
    def is_done(self) -> bool:
        """Whether both sides have completed the proofs of the mechanism."""

    def first(self) -> bytes:
        """Return the first message."""

    def respond(self, challenge: bytes) -> bytes:
        """Take the server's message, return ours (empty when done).

        Raises:
            ProtocolError: the message is not one that a server may send.
            ApiError: the server refused us, or could not prove that it knows the password.
        """


class ServerExchange(Protocol):
    """One login, from the server's side: answer every message until `is_done`."""

    @property
    def is_done(self) -> bool:
        """Whether the client has proved who it is."""

    @property
    def username(self) -> str:
        """Return the authenticated user name; raises RuntimeError before `is_done`."""

    @property
    def claimed_name(self) -> str:
        """The user name that the client has claimed so far, for the audit; empty if none."""

    @property
    def expires_ms(self) -> int:
        """The wall-clock time at which the credentials expire; 0 for never."""

    @property
    def has_delegation_token(self) -> bool:
        """Whether the client has proved that it has a delegation token, not a password."""

    def respond(self, message: bytes) -> bytes:
        """Take the client's message, return the answer to send.

        Raises:
            ApiError: SASL_AUTHENTICATION_FAILED; answer so, then close. The text is safe to send.
        """


class Mechanism(Protocol):
    """The interface of a module in `mechanisms`."""

    NAMES: tuple[str, ...]

    def client(self, name: str, login: Login) -> ClientExchange:
        """Begin an exchange as the client."""

    def server(self, name: str, accounts: Accounts, nonce: str) -> ServerExchange:
        """Begin an exchange as the server."""


@cache
def mechanisms() -> dict[str, Mechanism]:
    """Return the available mechanisms, by name, sorted."""
    folder = import_module("rookery.security.mechanisms")
    modules: dict[str, Mechanism] = {}
    for info in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        module = cast("Mechanism", import_module(info.name))
        for name in module.NAMES:
            if name in modules:
                raise RuntimeError(f"SASL mechanism {name} is offered twice, also by {info.name}")
            modules[name] = module
    return dict(sorted(modules.items()))


def open_client(name: str, login: Login) -> ClientExchange:
    """Begin a login to a broker.

    Raises:
        ConfigError: there is no such mechanism, or it cannot carry this user name or password.
    """
    mechanism = mechanisms().get(name)
    if mechanism is None:
        offered = ", ".join(mechanisms())
        raise ConfigError(f"sasl.mechanism: {name!r} is unknown; choose one of {offered}")
    return mechanism.client(name, login)


def open_server(name: str, accounts: Accounts, nonce: str) -> ServerExchange:
    """Start an exchange as the server.

    Raises:
        ApiError: UNSUPPORTED_SASL_MECHANISM.
    """
    mechanism = mechanisms().get(name)
    if mechanism is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    return mechanism.server(name, accounts, nonce)


def refusal(text: str = "invalid credentials") -> ApiError:
    """Create the error for a failed login.

    The default text is the same for an unknown user and a wrong password, so that it does not
    reveal which accounts exist.
    """
    return ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, text)


def check_login(mechanism: str, login: Login) -> None:
    """Reject credentials that cannot be sent.

    Raises:
        ConfigError: name or password is empty, holds a NUL or cannot be written in UTF-8.
    """
    for setting, value in (("username", login.username), ("password", login.password)):
        is_text = value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
        if not value or "\0" in value or not is_text:
            # The value itself stays out of the message: it may be the password.
            raise ConfigError(f"sasl.{setting}: {mechanism} needs text without NUL characters")


def read_challenge(message: bytes) -> str:
    """Decode a server's message, within limits."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a SASL challenge of {len(message)} bytes is too long")
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("a SASL challenge is not UTF-8") from None


def read_response(message: bytes) -> str:
    """Decode a client's message, within limits."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise refusal("the SASL message is too long")
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise refusal("the SASL message is not UTF-8") from None
