"""ExpireDelegationToken: remove a token, or let it expire at another time."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide
from rookery.broker.tokens.tokenrequest import token_user
from rookery.cluster.events.tokenevents import DelegationTokenRevoked
from rookery.errors import ErrorCode
from rookery.wire.messages.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

_MAX_PERIOD_MS: Final = 2**53


@handles(EXPIRE_DELEGATION_TOKEN, versions=range(1, 3), mutates=True, touches=())
async def expire_delegation_token(
    call: Call, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Expire a token; its owner and its renewers can. A negative period removes it at once."""
    user, tokens = token_user(call), call.services.delegation_tokens
    tokens.require_key()
    await call.services.replica.barrier()
    token_id = tokens.find(bytes(request.hmac))
    if token_id is None:
        return ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND, expiry_timestamp=0
        )
    now_ms, period_ms = call.services.clock.now_ms(), request.expiry_time_period_ms
    event = DelegationTokenRevoked(
        token_id=token_id,
        principal=str(user),
        now_ms=now_ms,
        # The token's own maximum is checked later; a sum of any length would not fit the event.
        expires_ms=-1 if period_ms < 0 else now_ms + min(period_ms, _MAX_PERIOD_MS),
    )
    [outcome] = await decide(call, [event])
    return ExpireDelegationTokenResponse(
        error_code=outcome.error, expiry_timestamp=outcome.value or 0
    )
