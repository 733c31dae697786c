"""SaslHandshake: choose the mechanism of a login."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.wire.messages.sasl_handshake import (
    SASL_HANDSHAKE,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@handles(SASL_HANDSHAKE, mutates=False)
def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin a login, if this listener offers the mechanism."""
    login = call.services.logins[call.connection.session.listener]
    return login.handshake(call.connection, request.mechanism, is_bare=call.version == 0)
