"""SaslAuthenticate: one message of a login."""

from __future__ import annotations

from collections.abc import Awaitable

from rookery.broker.call import Call, handles
from rookery.wire.messages.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


@handles(SASL_AUTHENTICATE, mutates=False)
def sasl_authenticate(
    call: Call, request: SaslAuthenticateRequest
) -> Awaitable[SaslAuthenticateResponse]:
    """Pass the client's message to the mechanism; a failed login closes the connection."""
    login = call.services.logins[call.connection.session.listener]
    return login.authenticate(call.connection, request)
