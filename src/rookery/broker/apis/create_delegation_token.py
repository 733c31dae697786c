"""CreateDelegationToken: create a token that stands for its owner for a limited time."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide_for_all_brokers, require_security
from rookery.broker.tokens.tokenrequest import token_user
from rookery.cluster.events.tokenevents import DelegationTokenCreated
from rookery.errors import ApiError, ErrorCode
from rookery.model.uuid import random_uuid, uuid_text
from rookery.security.principal import ANONYMOUS, USER, Principal
from rookery.wire.messages.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


@handles(
    CREATE_DELEGATION_TOKEN,
    versions=range(1, 4),
    mutates=True,
)
async def create_delegation_token(
    call: Call, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create a token for the client, or for the owner that it names."""
    requester = Principal.parse(call.connection.session.principal or str(ANONYMOUS))
    owner = _owner(request, requester)
    try:
        token_user(call)
        return await _create(call, request, owner, requester)
    except ApiError as error:
        return _respond(owner, requester, error_code=error.code)


async def _create(
    call: Call, request: CreateDelegationTokenRequest, owner: Principal, requester: Principal
) -> CreateDelegationTokenResponse:
    # Logins create users only, so that a token of another kind of owner would be useless.
    kinds = {owner.kind, *(renewer.principal_type for renewer in request.renewers)}
    if kinds != {USER}:
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    tokens = call.services.delegation_tokens
    tokens.require_key()
    require_security(call)
    now_ms = call.services.clock.now_ms()
    lifetime_ms = tokens.settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    event = DelegationTokenCreated(
        token_id=uuid_text(random_uuid(call.services.random.token)),
        owner=str(owner),
        requester=str(requester),
        renewers=[
            f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers
        ],
        issued_ms=now_ms,
        expires_ms=now_ms + min(lifetime_ms, tokens.settings.expiry_ms),
        max_ms=now_ms + lifetime_ms,
    )
    [outcome] = await decide_for_all_brokers(call, [event])
    if outcome.error is not ErrorCode.NONE:
        raise ApiError(outcome.error)
    return _respond(
        owner,
        requester,
        issue_timestamp=event.issued_ms,
        expiry_timestamp=event.expires_ms,
        max_timestamp=event.max_ms,
        token_id=event.token_id,
        hmac=tokens.hmac_of(event.token_id),
    )


def _owner(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def _respond(
    owner: Principal, requester: Principal, **values: object
) -> CreateDelegationTokenResponse:
    nothing = CREATE_DELEGATION_TOKEN.refuse(
        CreateDelegationTokenRequest(renewers=[]), ErrorCode.NONE
    )
    return nothing.replace(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        **values,
    )
