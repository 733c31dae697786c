"""CreateDelegationToken (key 38): get a token that stands for a user for some time (KIP-48).

A job hands the token to its workers, which log in with it by SCRAM: its id is the user name, its
HMAC the password. No worker ever sees the user's own credentials.

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
    3: a user may ask for a token that stands for another one (KIP-373).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, SecretBytes, TokenId, field, i32, i64
from rookery.wire.resources import OwnerName, PrincipalName, RequesterName

# Kafka's name for an unauthenticated user; its broker answers so when it makes no token.
_NOBODY_TYPE, _NOBODY_NAME = "User", "ANONYMOUS"


class CreateDelegationTokenRequest(Message):
    """The token's owner, the users that may renew it, and its longest lifetime."""

    owner_principal_type: str | None = field(since=3, default=None)  # null: the requester
    owner_principal_name: OwnerName | None = field(since=3, default=None)
    renewers: list[CreatableRenewers]  # in addition to the owner, which always may
    max_lifetime_ms: i64 = -1  # -1: as long as the broker allows


class CreatableRenewers(Message):
    """A principal that may renew the token."""

    principal_type: str
    principal_name: PrincipalName


class CreateDelegationTokenResponse(Message):
    """The token. Times are milliseconds since 1970."""

    error_code: ErrorCode
    principal_type: str
    principal_name: PrincipalName
    token_requester_principal_type: str = field(since=3, default="")
    token_requester_principal_name: RequesterName = field(since=3, default="")
    issue_timestamp: i64
    expiry_timestamp: i64  # unless renewed
    max_timestamp: i64  # no renewal goes beyond this
    token_id: TokenId
    hmac: SecretBytes
    throttle_time_ms: i32 = 0


def refuse(request: CreateDelegationTokenRequest, code: ErrorCode) -> CreateDelegationTokenResponse:
    """Answer with the code and an empty token of the anonymous user."""
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=_NOBODY_TYPE,
        principal_name=_NOBODY_NAME,
        token_requester_principal_type=_NOBODY_TYPE,
        token_requester_principal_name=_NOBODY_NAME,
        issue_timestamp=-1,
        expiry_timestamp=-1,
        max_timestamp=-1,
        token_id="",
        hmac=b"",
    )


CREATE_DELEGATION_TOKEN = Api(
    key=38,
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
    versions=range(4),
    flexible=2,
    refuse=refuse,
)
