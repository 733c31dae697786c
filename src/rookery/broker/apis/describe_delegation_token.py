"""DescribeDelegationToken: list tokens; the guard omits those that the client may not see."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.tokens.tokenrequest import token_user
from rookery.cluster.state.tokens import StoredToken
from rookery.errors import ErrorCode
from rookery.security.principal import Principal
from rookery.wire.messages.describe_delegation_token import (
    DESCRIBE_DELEGATION_TOKEN,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


@handles(
    DESCRIBE_DELEGATION_TOKEN,
    versions=range(1, 4),
    mutates=False,
)
async def describe_delegation_token(
    call: Call, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """List all tokens, or those that belong to the given principals or that they can renew."""
    token_user(call)
    tokens = call.services.delegation_tokens
    tokens.require_key()
    await call.services.replica.barrier()
    owners = request.owners
    wanted = (
        None
        if owners is None
        else {f"{owner.principal_type}:{owner.principal_name}" for owner in owners}
    )
    stored = call.state.security.tokens
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        tokens=[
            _describe(token_id, token, tokens.hmac_of(token_id))
            for token_id, token in stored.items()
            if wanted is None or not wanted.isdisjoint(token.principals)
        ],
    )


def _describe(token_id: str, token: StoredToken, hmac: bytes) -> DescribedDelegationToken:
    owner, requester = Principal.parse(token.owner), Principal.parse(token.requester)
    return DescribedDelegationToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(
                principal_type=renewer.kind, principal_name=renewer.name
            )
            for renewer in map(Principal.parse, token.renewers)
        ],
    )
