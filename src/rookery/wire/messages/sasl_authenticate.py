"""SaslAuthenticate (key 36): one step of the SASL exchange that SaslHandshake has opened (KIP-152).

The bytes belong to the mechanism: Kafka carries them and does not look inside. A mechanism takes as
many rounds as it needs (PLAIN one, SCRAM two).

Versions:
    1: adds how long the session lasts; the client must authenticate again before that (KIP-368).
    2: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, SecretBytes, field, i64


class SaslAuthenticateRequest(Message):
    """A token of the mechanism from the client."""

    auth_bytes: SecretBytes


class SaslAuthenticateResponse(Message):
    """A token of the mechanism from the server, or the error."""

    error_code: ErrorCode
    error_message: str | None = None
    auth_bytes: SecretBytes
    session_lifetime_ms: i64 = field(since=1, default=0)  # 0: without end


def refuse(request: SaslAuthenticateRequest, code: ErrorCode) -> SaslAuthenticateResponse:
    """Answer with the code and no bytes."""
    return SaslAuthenticateResponse(error_code=code, error_message=code.sentence, auth_bytes=b"")


SASL_AUTHENTICATE = Api(
    key=36,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
    versions=range(3),
    flexible=2,
    refuse=refuse,
)
