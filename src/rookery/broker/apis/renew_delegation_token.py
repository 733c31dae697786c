"""RenewDelegationToken: extend the life of a token, up to its maximum."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide
from rookery.broker.tokens.tokenrequest import token_user
from rookery.cluster.events.tokenevents import DelegationTokenRenewed
from rookery.errors import ErrorCode
from rookery.wire.messages.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(RENEW_DELEGATION_TOKEN, versions=range(1, 3), mutates=True, touches=())
async def renew_delegation_token(
    call: Call, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Renew a token; its owner and its renewers can."""
    user, tokens = token_user(call), call.services.delegation_tokens
    tokens.require_key()
    await call.services.replica.barrier()
    token_id = tokens.find(bytes(request.hmac))
    if token_id is None:
        return RenewDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND, expiry_timestamp=0
        )
    period_ms = tokens.settings.expiry_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    now_ms = call.services.clock.now_ms()
    event = DelegationTokenRenewed(
        token_id=token_id, principal=str(user), now_ms=now_ms, expires_ms=now_ms + period_ms
    )
    [outcome] = await decide(call, [event])
    return RenewDelegationTokenResponse(
        error_code=outcome.error, expiry_timestamp=outcome.value or 0
    )
