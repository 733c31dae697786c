"""Checks of passwords and tokens that all kinds of accounts share."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.security.bearer import TokenVerifier
from rookery.security.credential import ScramCredential
from rookery.security.sasl import AcceptedToken, refusal
from rookery.service.listen.decoys import Decoys


def match_password(
    username: str, password: str, credentials: Sequence[ScramCredential], decoys: Decoys
) -> bool:
    """Check a password against a user's credentials; each of them may have another password.

    A user has one credential per mechanism, so that the hashing is bounded. A wrong password costs
    one hash for each, and so does a user without credentials.
    """
    hashed = credentials or decoys.of_user(username)
    return any(each.matches(password) for each in hashed) and bool(credentials)


def match_token(tokens: TokenVerifier | None, token: str) -> AcceptedToken:
    """Return the user of a bearer token.

    Args:
        tokens: checks it; None if the listener accepts no tokens.
        token: as the client has sent it.

    Raises:
        ApiError: the token is refused.
    """
    if tokens is None:
        raise refusal("tokens are not accepted here")
    return tokens.check(token)
