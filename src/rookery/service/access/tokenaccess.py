"""Access to delegation tokens.

Users create tokens for themselves and see their own without any rule. Access rules decide about
the tokens of other users.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.net.session import ClientSession
from rookery.security.access import Access, AclResource
from rookery.security.principal import ANONYMOUS, Principal
from rookery.service.access.policy import AccessClient
from rookery.wire.messages.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from rookery.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenResponse,
)


def can_use_token_apis(session: ClientSession) -> bool:
    """Return whether a client has proved who it is, and not by a delegation token."""
    is_known = bool(session.mechanism) or session.principal not in {None, str(ANONYMOUS)}
    return is_known and not session.has_delegation_token


def deny_creation(
    client: AccessClient, row: Access, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | None:
    """Return the refusal of a token for another user; None if the client may create it."""
    owner = Principal(request.owner_principal_type or "", request.owner_principal_name or "")
    if row.is_own_exempt and str(owner) == client.principal:
        return None
    if client.may(row.operation, row.resource, str(owner)):
        return None
    refusal = CREATE_DELEGATION_TOKEN.refuse(
        request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    )
    requester = Principal.parse(client.principal)
    return refusal.replace(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
    )


def omit_tokens(
    client: AccessClient, row: Access, answer: DescribeDelegationTokenResponse
) -> DescribeDelegationTokenResponse:
    """Omit the tokens that the client may not see."""
    tokens = [token for token in answer.tokens if _is_visible(client, row, token)]
    return answer.replace(tokens=tokens)


def _is_visible(client: AccessClient, row: Access, token: DescribedDelegationToken) -> bool:
    owner = f"{token.principal_type}:{token.principal_name}"
    requester = f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
    renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers]
    if row.is_own_exempt and client.principal in {owner, requester, *renewers}:
        return True
    if client.has(row.operation, row.resource, token.token_id):
        return True
    return row.or_on_owner is not None and client.has(row.or_on_owner, AclResource.USER, owner)
