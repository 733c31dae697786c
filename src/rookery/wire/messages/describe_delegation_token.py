"""DescribeDelegationToken (key 41): list the tokens that the asker may see (KIP-48).

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
    3: adds the requester of a token, which need not be its owner (KIP-373).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, SecretBytes, TokenId, field, i32, i64
from rookery.wire.resources import PrincipalName, RequesterName


class DescribeDelegationTokenRequest(Message):
    """Whose tokens to list."""

    owners: list[DescribeDelegationTokenOwner] | None = None  # null: everyone's


class DescribeDelegationTokenOwner(Message):
    """A principal that may own tokens."""

    principal_type: str
    principal_name: PrincipalName


class DescribeDelegationTokenResponse(Message):
    """The tokens found."""

    error_code: ErrorCode
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: i32 = 0


class DescribedDelegationToken(Message):
    """One token, secret included. Times are milliseconds since 1970."""

    principal_type: str
    principal_name: PrincipalName
    token_requester_principal_type: str = field(since=3, default="")
    token_requester_principal_name: RequesterName = field(since=3, default="")
    issue_timestamp: i64
    expiry_timestamp: i64
    max_timestamp: i64
    token_id: TokenId
    hmac: SecretBytes
    renewers: list[DescribedDelegationTokenRenewer]


class DescribedDelegationTokenRenewer(Message):
    """A principal that may renew the token."""

    principal_type: str
    principal_name: PrincipalName


def refuse(
    request: DescribeDelegationTokenRequest, code: ErrorCode
) -> DescribeDelegationTokenResponse:
    """Answer with the code and no tokens."""
    return DescribeDelegationTokenResponse(error_code=code, tokens=[])


def refuse_items(
    request: DescribeDelegationTokenRequest, code: ErrorCode
) -> DescribeDelegationTokenResponse:
    """Answer with no tokens: only the whole response has an error code."""
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=[])


DESCRIBE_DELEGATION_TOKEN = Api(
    key=41,
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
    versions=range(4),
    flexible=2,
    refuse=refuse,
    items=(
        Items(
            "owners(principal_type, principal_name)",
            "tokens(principal_type, principal_name)",
            has_codes=False,
        ),
    ),
    refuse_items=refuse_items,
)
