"""ExpireDelegationToken: remove a token, or let it expire at another time."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide
from rookery.broker.tokens.tokenrequest import token_user
from rookery.cluster.events.tokenevents import DelegationTokenRenewed, DelegationTokenRevoked
from rookery.errors import ApiError, ErrorCode
from rookery.security.principal import Principal
from rookery.wire.message import Message
from rookery.wire.messages.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(EXPIRE_DELEGATION_TOKEN, versions=range(1, 3), mutates=True, touches=())
async def expire_delegation_token(
    call: Call, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Expire a token; its owner and its renewers can. A negative period removes it at once."""
    user, tokens = token_user(call), call.services.delegation_tokens
    tokens.require_key()
    await call.services.replica.barrier()
    token_id = tokens.find(bytes(request.hmac))
    event = _event(call, token_id, user, request.expiry_time_period_ms)
    [outcome] = await decide(call, [event])
    if outcome.error is not ErrorCode.NONE:
        raise ApiError(outcome.error)
    is_removed = outcome.value is None
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        # Kafka returns the period of a token that is removed, not a time.
        expiry_timestamp=request.expiry_time_period_ms if is_removed else outcome.value,
    )


def _event(call: Call, token_id: str, user: Principal, period_ms: int) -> Message:
    now_ms = call.services.clock.now_ms()
    if period_ms < 0:
        return DelegationTokenRevoked(token_id=token_id, principal=str(user), now_ms=now_ms)
    return DelegationTokenRenewed(
        token_id=token_id,
        principal=str(user),
        now_ms=now_ms,
        # A longer period than any token's would not fit into the event.
        expires_ms=now_ms + min(period_ms, _LONGEST_MS),
    )


_LONGEST_MS = 2**53
