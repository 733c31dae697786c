"""DescribeUserScramCredentials (key 50): which users can log in by SCRAM, and how (KIP-554).

Salts and keys are never returned.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, User, i8, i32


class DescribeUserScramCredentialsRequest(Message):
    """The users to look up."""

    users: list[UserName] | None = None  # null or empty: all


class UserName(Message):
    """One user."""

    name: User


class DescribeUserScramCredentialsResponse(Message):
    """The credentials of each user."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    results: list[DescribeUserScramCredentialsResult]


class DescribeUserScramCredentialsResult(Message):
    """One user; RESOURCE_NOT_FOUND if there are no credentials."""

    user: User
    error_code: ErrorCode
    error_message: str | None = None
    credential_infos: list[CredentialInfo]


class CredentialInfo(Message):
    """One way for the user to log in."""

    mechanism: i8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: i32


def refuse(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    """Give the code to the whole and to every user that was named."""
    results = refuse_items(request, code).results
    return DescribeUserScramCredentialsResponse(
        error_code=code, error_message=code.sentence, results=results
    )


def refuse_items(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    """Give the code to every user that was named."""
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        results=[
            DescribeUserScramCredentialsResult(
                user=user.name, error_code=code, error_message=code.sentence, credential_infos=[]
            )
            for user in request.users or []
        ],
    )


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    key=50,
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(Items("users(name)", "results(user)", all_if_empty=range(1)),),
    refuse_items=refuse_items,
)
