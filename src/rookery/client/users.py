"""The users of a cluster that log in with SCRAM: list them, set their passwords, remove them.

A password never leaves the client: the broker receives the salted hash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from rookery.client.connect.connections import Link
from rookery.client.connect.router import Router
from rookery.clock import Random
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.security.credential import MIN_ITERATIONS, SALT_BYTES, ScramMechanism, salted_password
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)

T = TypeVar("T")


ALL_MECHANISMS: Final = tuple(ScramMechanism)
"""Both mechanisms, so that every client can log in."""


@dataclass(frozen=True, slots=True)
class UserCredential:
    """One way for a user to log in; salts and keys are never returned."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user and its credentials."""

    name: str
    credentials: tuple[UserCredential, ...]


class UserAdmin:
    """Describes and changes the users of a cluster."""

    def __init__(self, router: Router, random: Random) -> None:
        self._router = router
        self._random = random

    async def describe(
        self, names: Iterable[str] = (), timeout_ms: int | None = None
    ) -> list[UserDescription]:
        """Return the given users, or all of them; a user without credentials is left out."""
        users = [UserName(name=name) for name in dict.fromkeys(names)] or None

        async def ask(link: Link, request_ms: int) -> list[UserDescription]:
            version = link.versions.choose(DESCRIBE_USER_SCRAM_CREDENTIALS)
            request = DescribeUserScramCredentialsRequest(users=users)
            answer = await link.call(DESCRIBE_USER_SCRAM_CREDENTIALS, version, request, request_ms)
            _check(answer.error_code, "describe users", answer.error_message)
            there = [
                row for row in answer.results if row.error_code is not ErrorCode.RESOURCE_NOT_FOUND
            ]
            for row in there:
                _check(row.error_code, f"describe user {row.user!r}", row.error_message)
            return sorted(map(_description, there), key=lambda user: user.name)

        return await self._ask("describe users", ask, timeout_ms)

    async def set_password(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Sequence[ScramMechanism] = ALL_MECHANISMS,
        iterations: int = MIN_ITERATIONS,
        timeout_ms: int | None = None,
    ) -> None:
        """Create a user, or replace its password for the given mechanisms, one after the other.

        Raises:
            ApiError: for example UNACCEPTABLE_CREDENTIAL; earlier mechanisms are changed.
        """
        # Kafka 4.3.1 refuses two mechanisms of a user in one request.
        for mechanism in mechanisms:
            salt = self._random.token(SALT_BYTES)
            upsertion = ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(mechanism.text, password, salt, iterations),
            )
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
            await self._alter(f"set the password of user {name!r}", request, timeout_ms)

    async def remove(
        self, name: str, mechanisms: Iterable[ScramMechanism], timeout_ms: int | None = None
    ) -> None:
        """Remove a user's credentials; a user without any does not exist.

        Raises:
            ApiError: RESOURCE_NOT_FOUND if the user lacks one of them; earlier ones are removed.
        """
        for mechanism in mechanisms:
            deletion = ScramCredentialDeletion(name=name, mechanism=mechanism)
            request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
            await self._alter(f"remove user {name!r}", request, timeout_ms)

    async def _alter(
        self, what: str, request: AlterUserScramCredentialsRequest, timeout_ms: int | None
    ) -> None:
        is_in_doubt = False

        async def ask(link: Link, request_ms: int) -> None:
            nonlocal is_in_doubt
            version = link.versions.choose(ALTER_USER_SCRAM_CREDENTIALS)
            try:
                answer = await link.call(ALTER_USER_SCRAM_CREDENTIALS, version, request, request_ms)
            except Unavailable:
                is_in_doubt = True
                raise
            for row in answer.results:
                # After a lost response, an earlier try may have removed the credentials.
                if is_in_doubt and row.error_code is ErrorCode.RESOURCE_NOT_FOUND:
                    continue
                _check(row.error_code, what, row.error_message)

        await self._ask(what, ask, timeout_ms)

    async def _ask(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], timeout_ms: int | None
    ) -> T:
        deadline = self._router.retrier.deadline(timeout_ms)
        return await self._router.ask_controller(what, ask, deadline)


def _description(row: DescribeUserScramCredentialsResult) -> UserDescription:
    credentials = [
        UserCredential(ScramMechanism(info.mechanism), info.iterations)
        for info in row.credential_infos
    ]
    return UserDescription(
        row.user, tuple(sorted(credentials, key=lambda credential: credential.mechanism))
    )


def _check(code: ErrorCode, what: str, message: str | None) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {message or code.sentence}")
