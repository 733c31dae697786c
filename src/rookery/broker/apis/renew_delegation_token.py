"""RenewDelegationToken: extend the life of a token, up to its maximum."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.tokens.tokenrequest import change_token
from rookery.cluster.events.tokenevents import DelegationTokenRenewed
from rookery.wire.messages.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(RENEW_DELEGATION_TOKEN, versions=range(1, 3), mutates=True)
async def renew_delegation_token(
    call: Call, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Renew a token; its owner and its renewers can."""
    period_ms = call.services.delegation_tokens.settings.expiry_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    outcome = await change_token(
        call, request.hmac, DelegationTokenRenewed, lambda now_ms: now_ms + period_ms
    )
    return RenewDelegationTokenResponse(
        error_code=outcome.error, expiry_timestamp=outcome.value or 0
    )
