"""Login with SASL: SaslHandshake chooses a mechanism, SaslAuthenticate carries its messages.

    new ──SaslHandshake──► mechanism chosen ──SaslAuthenticate, …──► authenticated
                                  │
                                  └── failed: answer after a delay, then close

After version 0 of SaslHandshake, the messages are bare frames without Kafka's header. A failure
then has no answer.

A client that has logged in may log in again on the same connection (KIP-368), as the same principal
and with the same mechanism. A mechanism that hashes passwords runs in a small pool of threads
(`PasswordPool`), so that logins cannot delay other clients.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import sleep
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.clock import Clock, Random, loop_seconds
from rookery.errors import ApiError, Error, ErrorCode, ProtocolError, Unavailable, code_of
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.security.sasl import (
    MAX_MESSAGE_BYTES,
    Accounts,
    ServerExchange,
    open_server,
    refusal,
)
from rookery.service.listen.passwordpool import MAX_WAITING, PasswordPool
from rookery.wire.frame import PREFIX_BYTES
from rookery.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from rookery.wire.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    # It imports the cluster's events, which the settings of listeners do not need.
    from rookery.service.audit.auditlog import AuditLog

log = logging.getLogger(__name__)

_SLOW_MECHANISMS: Final = frozenset({"PLAIN"})
"""Mechanisms in which the server hashes the client's password."""


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """How clients log in on one listener."""

    mechanisms: tuple[str, ...] = ()
    """The mechanisms that are offered; empty if the listener has no SASL."""
    max_session_ms: int = 0
    """How long a login is valid (Kafka's connections.max.reauth.ms); 0 without limit."""
    failure_delay_ms: int = 100
    """A failed login is answered when a multiple of this time has passed since its last message.

    This slows down guessing, and the time that the check took does not show."""
    max_waiting: int = MAX_WAITING
    """Clients that can wait until their passwords are hashed."""


class _Login:
    """A login in progress on one connection."""

    __slots__ = ("exchange", "is_bare", "mechanism", "unregister")

    def __init__(self, mechanism: str, exchange: ServerExchange, *, is_bare: bool) -> None:
        self.mechanism = mechanism
        self.exchange = exchange
        self.is_bare = is_bare
        self.unregister: Callable[[], None] = _ignore
        """Removes the callback for the loss of the client."""


def failure_pause(step: float, passed: float) -> float:
    """Return for how long a failed login waits for its answer: until the next whole step.

    Args:
        step: the times at which failures are answered, as seconds between them.
        passed: the seconds since the message came.
    """
    return step - passed % step if step else 0.0


def _close_later(connection: Connection) -> None:
    """Close a connection after the answer that is being made."""
    asyncio.get_running_loop().call_soon(connection.close)


def _ignore() -> None:
    """Do nothing: no callback is registered yet."""


class _Reply(NamedTuple):
    """The answer to one message, and the lifetime of the session if the login is complete."""

    message: bytes
    lifetime_ms: int


class LoginService:
    """Logs in the clients of one listener."""

    def __init__(
        self, settings: LoginSettings, accounts: Accounts, clock: Clock, random: Random
    ) -> None:
        """Offer the mechanisms of the settings.

        Args:
            settings: the mechanisms and the limits.
            accounts: the users.
            clock: times the sessions.
            random: creates nonces.
        """
        self.settings = settings
        self._accounts = accounts
        self._clock = clock
        self._random = random
        self._logins: dict[Connection, _Login] = {}
        self._passwords = PasswordPool(settings.max_waiting)
        self.audit: AuditLog | None = None
        """Records logins; None if there is no audit file."""

    def close(self) -> None:
        """Stop the threads; logins in progress fail."""
        self._passwords.close()

    def handshake(
        self, connection: Connection, mechanism: str, *, is_bare: bool = False
    ) -> SaslHandshakeResponse:
        """Choose a mechanism; `is_bare` if its messages follow without Kafka's header.

        Raises:
            ApiError: the listener has no SASL, bare messages would follow requests, or a login is
                already in progress: the connection closes after the answer.
        """
        session, offered = connection.session, list(self.settings.mechanisms)
        is_within = connection in self._logins
        if is_within:
            _close_later(connection)
        if not offered or is_within or (is_bare and session.principal is not None):
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE)
        if mechanism not in offered or session.mechanism not in {"", mechanism}:
            _close_later(connection)
            return SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
            )
        exchange = open_server(mechanism, self._accounts, self._random.token(18).hex())
        login = _Login(mechanism, exchange, is_bare=is_bare)
        self._logins[connection] = login
        if is_bare:
            connection.limit_frames(MAX_MESSAGE_BYTES, minimum=0)
        login.unregister = connection.when_lost(partial(self._drop, connection))
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=offered)

    def expects_token(self, connection: Connection) -> bool:
        """Return whether the next frame is a message of a mechanism, without Kafka's header."""
        login = self._logins.get(connection)
        return login is not None and login.is_bare

    def take_token(self, connection: Connection, message: bytes) -> Awaitable[Answer]:
        """Pass a bare message to the mechanism; a failed login closes the connection."""
        # A client that logs in sends one message at a time. What it sends too early waits.
        connection.pause()
        return self._take_token(connection, message)

    async def _take_token(self, connection: Connection, message: bytes) -> Answer:
        try:
            reply = await self._respond(connection, message)
        except ApiError:
            return None
        return [len(reply.message).to_bytes(PREFIX_BYTES, "big"), reply.message]

    def authenticate(
        self, connection: Connection, request: SaslAuthenticateRequest
    ) -> Awaitable[SaslAuthenticateResponse]:
        """Pass one message to the mechanism; a failed login closes the connection.

        Raises:
            ApiError: the client needs no login and has not begun one; the connection stays open.
        """
        if connection.session.principal is not None and connection not in self._logins:
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE)
        connection.pause()
        return self._authenticate(connection, bytes(request.auth_bytes))

    async def _authenticate(
        self, connection: Connection, message: bytes
    ) -> SaslAuthenticateResponse:
        try:
            reply = await self._respond(connection, message)
        except ApiError as error:
            return SaslAuthenticateResponse(
                error_code=error.code, error_message=error.text, auth_bytes=b""
            )
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            auth_bytes=reply.message,
            session_lifetime_ms=reply.lifetime_ms,
        )

    async def _respond(self, connection: Connection, message: bytes) -> _Reply:
        """Pass one message of a paused connection to the mechanism and return its answer.

        Raises:
            ApiError: the login failed; the connection closes after the answer.
        """
        login, began = self._logins.get(connection), loop_seconds()
        try:
            return await self._step(connection, login, message)
        except (ApiError, ProtocolError) as error:
            self._record_failure(connection, login, error)
            self._forget(connection)
            log.info("login failed: %s", error, extra={"client": connection.peer})
            await sleep(
                failure_pause(self.settings.failure_delay_ms / 1000, loop_seconds() - began)
            )
            connection.close()
            if isinstance(error, ApiError):
                raise
            raise refusal() from error
        finally:
            connection.resume()

    async def _step(self, connection: Connection, login: _Login | None, message: bytes) -> _Reply:
        if login is None:
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE)
        try:
            answer = await self._ask(connection, login, message)
        except Unavailable as error:
            # Without an answer: to clients, a failed login is final.
            connection.abort()
            raise refusal(str(error)) from error
        return _Reply(answer, self._finish(connection, login) if login.exchange.is_done else 0)

    async def _ask(self, connection: Connection, login: _Login, message: bytes) -> bytes:
        """Pass a message to the mechanism."""
        respond = login.exchange.respond
        if login.mechanism in _SLOW_MECHANISMS:
            if self._passwords.is_full:
                raise Unavailable("too many logins are waiting")
            return await self._passwords.run(connection, respond, message)
        return respond(message)

    def _drop(self, connection: Connection) -> None:
        """Forget a client that has disconnected."""
        self._logins.pop(connection, None)
        self._passwords.drop(connection)

    def _forget(self, connection: Connection) -> None:
        """End the login of a client that may log in again."""
        login = self._logins.pop(connection, None)
        if login is not None:
            login.unregister()

    def _finish(self, connection: Connection, login: _Login) -> int:
        """Admit the client and return how long; a second login must be of the same principal."""
        self._forget(connection)
        session, principal = connection.session, f"User:{login.exchange.username}"
        if session.principal not in {None, principal}:
            raise refusal("a connection cannot change its principal")
        session.mechanism = login.mechanism
        session.has_delegation_token = login.exchange.has_delegation_token
        lifetime_ms = self._lifetime_ms(login.exchange)
        session.expires_ms = self._clock.monotonic_ms() + lifetime_ms if lifetime_ms else 0
        connection.set_principal(principal)
        log.info("login of %s", principal, extra={"client": connection.peer})
        if self.audit is not None:
            self.audit.record_login(session, principal)
        return lifetime_ms

    def _record_failure(self, connection: Connection, login: _Login | None, error: Error) -> None:
        if self.audit is not None:
            claimed = login.exchange.claimed_name if login is not None else ""
            self.audit.record_login(
                connection.session, f"User:{claimed}", reason=code_of(error).name
            )

    def _lifetime_ms(self, exchange: ServerExchange) -> int:
        """Return how long a login is valid; 0 means without limit. A token limits it, too."""
        limit_ms = self.settings.max_session_ms
        if not exchange.expires_ms:
            return limit_ms
        left_ms = max(1, exchange.expires_ms - self._clock.now_ms())
        return min(limit_ms, left_ms) if limit_ms else left_ms
