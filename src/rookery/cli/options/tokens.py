"""Functions that the commands of delegation tokens share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rookery.client.client import Client
    from rookery.client.tokens import DelegationToken

PRINCIPAL_HELP = "such as User:alice"


def read_principals(flag: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Check principals.

    Raises:
        ConfigError: one of them has no type.
    """
    from rookery.errors import ConfigError
    from rookery.security.principal import Principal

    try:
        return tuple(str(Principal.parse(text)) for text in texts)
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from None


async def find_token(client: Client, token_id: str) -> DelegationToken:
    """Return the token with an id.

    Raises:
        ApiError: DELEGATION_TOKEN_NOT_FOUND; there is none, or the user may not see it.
    """
    from rookery.errors import ApiError, ErrorCode

    for token in await client.tokens.describe():
        if token.token_id == token_id:
            return token
    raise ApiError(
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        f"{token_id}: no such token, or it is not yours; `rookery tokens list` lists yours",
    )


def token_as_json(token: DelegationToken) -> dict[str, object]:
    """Return a token without its HMAC."""
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }


def format_time(time_ms: int) -> str:
    """Return a time in UTC, without fractions of a second."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
