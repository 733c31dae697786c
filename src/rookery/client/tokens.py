"""Delegation tokens of a cluster: create, renew, expire and list them.

A token stands for its owner for a limited time. A client logs in with it by SCRAM: see
`Sasl.is_delegation_token`.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rookery.client.connect.connections import Link
from rookery.client.connect.router import Router
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.security.principal import Principal
from rookery.wire.messages.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from rookery.wire.messages.describe_delegation_token import (
    DESCRIBE_DELEGATION_TOKEN,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from rookery.wire.messages.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequest,
)
from rookery.wire.messages.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequest,
)

T = TypeVar("T")

BROKER_DEFAULT = -1
"""As long as the broker allows."""
_OWNER_SINCE = 3
"""The first version of CreateDelegationToken that can name another owner."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals are written as in `User:alice`; times are milliseconds since 1970."""

    token_id: str
    """The user name of a login with the token."""
    hmac: bytes = field(repr=False)
    """Identifies the token when it is renewed or expired; secret."""
    owner: str
    requester: str
    """The principal that created it; empty if the broker does not report it."""
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """No renewal goes beyond this."""

    @property
    def password(self) -> str:
        """The password of a login with the token."""
        return base64.b64encode(self.hmac).decode()


class TokenAdmin:
    """Creates, changes and lists delegation tokens. The client must have logged in, without one."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def create(
        self,
        *,
        owner: str = "",
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = BROKER_DEFAULT,
        timeout_ms: int | None = None,
    ) -> DelegationToken:
        """Create a token.

        Args:
            owner: the principal that the token stands for; empty for the client itself.
            renewers: principals that can renew it, besides its owner.
            max_lifetime_ms: the time after which it cannot be renewed any more.
            timeout_ms: the deadline of the call.

        Raises:
            ApiError: for example DELEGATION_TOKEN_AUTH_DISABLED.
        """
        named = Principal.parse(owner) if owner else None
        able = [Principal.parse(renewer) for renewer in renewers]
        request = CreateDelegationTokenRequest(
            owner_principal_type=named.kind if named else None,
            owner_principal_name=named.name if named else None,
            renewers=[
                CreatableRenewers(principal_type=renewer.kind, principal_name=renewer.name)
                for renewer in able
            ],
            max_lifetime_ms=max_lifetime_ms,
        )

        async def ask(link: Link, request_ms: int) -> DelegationToken:
            lowest = _OWNER_SINCE if named else 0
            version = link.versions.choose(CREATE_DELEGATION_TOKEN, lowest=lowest)
            answer = await link.call(CREATE_DELEGATION_TOKEN, version, request, request_ms)
            _check(answer.error_code, "create a delegation token")
            return _token(answer, tuple(map(str, able)))

        return await self._ask("create a delegation token", ask, timeout_ms)

    async def describe(
        self, owners: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[DelegationToken]:
        """Return the tokens that the client may see, of the given owners or of all."""
        named = None
        if owners is not None:
            named = [
                DescribeDelegationTokenOwner(principal_type=owner.kind, principal_name=owner.name)
                for owner in map(Principal.parse, owners)
            ]

        async def ask(link: Link, request_ms: int) -> list[DelegationToken]:
            version = link.versions.choose(DESCRIBE_DELEGATION_TOKEN)
            request = DescribeDelegationTokenRequest(owners=named)
            answer = await link.call(DESCRIBE_DELEGATION_TOKEN, version, request, request_ms)
            _check(answer.error_code, "describe delegation tokens")
            return [_token(token, _renewers(token)) for token in answer.tokens]

        tokens = await self._ask("describe delegation tokens", ask, timeout_ms)
        return sorted(tokens, key=lambda token: (token.owner, token.issued_ms, token.token_id))

    async def renew(
        self, hmac: bytes, period_ms: int = BROKER_DEFAULT, timeout_ms: int | None = None
    ) -> int:
        """Extend the life of a token; return the time at which it expires."""

        async def ask(link: Link, request_ms: int) -> int:
            version = link.versions.choose(RENEW_DELEGATION_TOKEN)
            request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
            answer = await link.call(RENEW_DELEGATION_TOKEN, version, request, request_ms)
            _check(answer.error_code, "renew a delegation token")
            return answer.expiry_timestamp

        return await self._ask("renew a delegation token", ask, timeout_ms)

    async def expire(
        self, hmac: bytes, period_ms: int = -1, timeout_ms: int | None = None
    ) -> int | None:
        """Let a token expire after a period; a negative one removes it at once.

        Returns:
            The time at which it expires; None if it is removed.
        """
        is_in_doubt = False

        async def ask(link: Link, request_ms: int) -> int | None:
            nonlocal is_in_doubt
            version = link.versions.choose(EXPIRE_DELEGATION_TOKEN)
            request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
            try:
                answer = await link.call(EXPIRE_DELEGATION_TOKEN, version, request, request_ms)
            except Unavailable:
                is_in_doubt = True
                raise
            # After a lost response, an earlier try may have removed it.
            if not is_in_doubt or answer.error_code is not ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
                _check(answer.error_code, "expire a delegation token")
            return answer.expiry_timestamp if period_ms >= 0 else None

        return await self._ask("expire a delegation token", ask, timeout_ms)

    async def _ask(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], timeout_ms: int | None
    ) -> T:
        deadline = self._router.retrier.deadline(timeout_ms)
        return await self._router.ask_controller(what, ask, deadline)


def _token(answer: Any, renewers: tuple[str, ...]) -> DelegationToken:
    requester = answer.token_requester_principal_name
    return DelegationToken(
        token_id=answer.token_id,
        hmac=bytes(answer.hmac),
        owner=f"{answer.principal_type}:{answer.principal_name}",
        requester=f"{answer.token_requester_principal_type}:{requester}" if requester else "",
        renewers=renewers,
        issued_ms=answer.issue_timestamp,
        expires_ms=answer.expiry_timestamp,
        max_ms=answer.max_timestamp,
    )


def _renewers(token: DescribedDelegationToken) -> tuple[str, ...]:
    return tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers)


def _check(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {code.sentence}")
