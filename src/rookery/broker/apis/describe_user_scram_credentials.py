"""DescribeUserScramCredentials: the mechanisms and iterations of users; never their keys."""

from __future__ import annotations

from collections import Counter

from rookery.broker.call import Call, handles
from rookery.cluster.state.security import StoredScram
from rookery.errors import ErrorCode
from rookery.wire.messages.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    mutates=False,
)
async def describe_user_scram_credentials(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the named users, or all that have a credential."""
    await call.services.replica.barrier()
    scram = call.state.security.scram
    asked = Counter(user.name for user in request.users or ())
    names = list(asked) or sorted(scram)
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        results=[_describe(name, scram.get(name), asked[name]) for name in names],
    )


def _describe(
    user: str, stored: dict[int, StoredScram] | None, asked: int
) -> DescribeUserScramCredentialsResult:
    if asked > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single "
            f"request: {user}",
            credential_infos=[],
        )
    if stored is None:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
            credential_infos=[],
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.NONE,
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in sorted(stored.items())
        ],
    )
