"""AlterUserScramCredentials (key 51): give users passwords for SCRAM, or take them away (KIP-554).

The client salts and hashes the password itself: the broker never sees it.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, SecretBytes, User, i8, i32


class AlterUserScramCredentialsRequest(Message):
    """The credentials to take away and the ones to set; a user's are changed together."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class ScramCredentialDeletion(Message):
    """A user that may no longer log in by this mechanism."""

    name: User
    mechanism: i8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512


class ScramCredentialUpsertion(Message):
    """A user's new credentials for one mechanism."""

    name: User
    mechanism: i8
    iterations: i32
    salt: SecretBytes
    salted_password: SecretBytes


class AlterUserScramCredentialsResponse(Message):
    """One result for each user."""

    throttle_time_ms: i32 = 0
    results: list[AlterUserScramCredentialsResult]


class AlterUserScramCredentialsResult(Message):
    """Whether one user's credentials were changed."""

    user: User
    error_code: ErrorCode
    error_message: str | None = None


def refuse(
    request: AlterUserScramCredentialsRequest, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Give the code to every user, once however often the user was named."""
    named = [change.name for change in request.deletions]
    named += [change.name for change in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=code.sentence)
            for user in dict.fromkeys(named)
        ]
    )


ALTER_USER_SCRAM_CREDENTIALS = Api(
    key=51,
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(
        Items("deletions(name)", "results(user)"),
        Items("upsertions(name)", "results(user)"),
    ),
)
