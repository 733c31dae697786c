"""Logs in to a broker: SaslHandshake, then the mechanism's messages in SaslAuthenticate."""

from __future__ import annotations

import asyncio

from rookery.client.connect.versions import Versions
from rookery.client.settings import Sasl
from rookery.clock import Random
from rookery.errors import ApiError, ErrorCode, ProtocolError
from rookery.net.upstream import Upstream
from rookery.security.sasl import ClientExchange, Login, open_client
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

_MAX_ROUNDS = 8


async def log_in(
    upstream: Upstream, versions: Versions, sasl: Sasl, random: Random, timeout_ms: int
) -> int:
    """Authenticate; return the session's lifetime in milliseconds, or 0 for unlimited.

    Raises:
        ApiError: the broker does not offer the mechanism, or rejects the login.
        ProtocolError: the broker's messages violate the mechanism.
        ConfigError: the credentials cannot be used.
    """
    # After version 0, bare tokens would follow without Kafka's frames. Every broker since 1.0 has
    # version 1.
    handshake = versions.choose(SASL_HANDSHAKE, lowest=1)
    answer = await upstream.call(
        SASL_HANDSHAKE,
        handshake,
        SaslHandshakeRequest(mechanism=sasl.mechanism),
        timeout_ms,
        is_urgent=True,
    )
    if answer.error_code is not ErrorCode.NONE:
        offered = ", ".join(answer.mechanisms) or "none"
        raise ApiError(
            answer.error_code,
            f"broker {upstream.name} does not offer {sasl.mechanism} on this listener; "
            f"it offers: {offered}",
        )
    secret = sasl.password
    if sasl.mechanism == "OAUTHBEARER":
        secret = await asyncio.to_thread(sasl.read_token)
    nonce = random.token(18).hex()
    login = Login(sasl.username, secret, nonce, is_token=sasl.is_delegation_token)
    exchange = open_client(sasl.mechanism, login)
    return await _exchange(upstream, versions, exchange, sasl, timeout_ms)


async def _exchange(
    upstream: Upstream,
    versions: Versions,
    exchange: ClientExchange,
    sasl: Sasl,
    timeout_ms: int,
) -> int:
    version = versions.choose(SASL_AUTHENTICATE)
    token = exchange.first()
    for _ in range(_MAX_ROUNDS):
        answer = await upstream.call(
            SASL_AUTHENTICATE,
            version,
            SaslAuthenticateRequest(auth_bytes=token),
            timeout_ms,
            is_urgent=True,
        )
        if answer.error_code is not ErrorCode.NONE:
            raise _make_refusal(upstream, sasl, answer.error_code, answer.error_message)
        # Salting a password may take a second of CPU time, which must not block the event loop.
        token = await asyncio.to_thread(exchange.respond, bytes(answer.auth_bytes))
        if exchange.is_done:
            return answer.session_lifetime_ms
    raise ProtocolError(f"broker {upstream.name}: {sasl.mechanism} did not come to an end")


def _make_refusal(upstream: Upstream, sasl: Sasl, code: ErrorCode, message: str | None) -> ApiError:
    said = f" ({message})" if message else ""
    has_token = sasl.mechanism == "OAUTHBEARER"
    subject = "the token" if has_token else f"user {sasl.username!r}"
    if sasl.is_delegation_token:
        subject = f"delegation token {sasl.username!r}"
    checks = "its expiry, issuer and audience" if has_token else "sasl.username and sasl.password"
    return ApiError(
        code, f"broker {upstream.name} refused {subject} by {sasl.mechanism}{said}; check {checks}"
    )
