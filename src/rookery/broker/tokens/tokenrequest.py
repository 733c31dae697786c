"""What the APIs of delegation tokens have in common: their users, and changes of a token."""

from __future__ import annotations

from collections.abc import Callable

from rookery.broker.call import Call
from rookery.broker.decisions import decide_for_all_brokers
from rookery.cluster.events.tokenevents import DelegationTokenRenewed, DelegationTokenRevoked
from rookery.cluster.state.outcome import Outcome
from rookery.errors import ApiError, ErrorCode
from rookery.security.principal import Principal
from rookery.service.access.tokenaccess import can_use_token_apis
from rookery.wire.buffer import Buffer


def token_user(call: Call) -> Principal:
    """Return the client's principal.

    Raises:
        ApiError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; the client is anonymous, or it has logged in
            with a token. Otherwise a token that is about to expire could replace itself.
    """
    session = call.connection.session
    if not can_use_token_apis(session) or session.principal is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return Principal.parse(session.principal)


async def change_token(
    call: Call,
    token_hmac: Buffer,
    event: type[DelegationTokenRenewed | DelegationTokenRevoked],
    expires_ms: Callable[[int], int],
) -> Outcome:
    """Change a token for the client; the outcome has the time at which it expires.

    Args:
        call: the request.
        token_hmac: identifies the token.
        event: the kind of change.
        expires_ms: returns the new time of expiry, given that of now.

    Raises:
        ApiError: the client may not use these APIs, or there are no tokens here.
        Unavailable: the cluster log is unreachable, so that new tokens may be unknown here.
    """
    user, tokens = token_user(call), call.services.delegation_tokens
    tokens.require_key()
    await call.services.replica.barrier()
    token_id = tokens.find(bytes(token_hmac))
    if token_id is None:
        return Outcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    now_ms = call.services.clock.now_ms()
    change = event(
        token_id=token_id, principal=str(user), now_ms=now_ms, expires_ms=expires_ms(now_ms)
    )
    [outcome] = await decide_for_all_brokers(call, [change])
    return outcome
