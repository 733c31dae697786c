"""What the APIs of delegation tokens have in common: which clients may use them."""

from __future__ import annotations

from rookery.broker.call import Call
from rookery.errors import ApiError, ErrorCode
from rookery.security.principal import Principal
from rookery.service.access.tokenaccess import can_use_token_apis


def token_user(call: Call) -> Principal:
    """Return the client's principal.

    Raises:
        ApiError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; the client is anonymous, or it has logged in
            with a token. Otherwise a token that is about to expire could replace itself.
    """
    session = call.connection.session
    if not can_use_token_apis(session) or session.principal is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return Principal.parse(session.principal)
