"""SaslHandshake (key 17): client and broker agree on a SASL mechanism before they authenticate.

Versions:
    0 the mechanism's own tokens follow as bare frames, without Kafka's headers.
    1 the tokens follow inside SaslAuthenticate, so that a failure can be reported (KIP-152).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message


class SaslHandshakeRequest(Message):
    """The mechanism that the client wants to use."""

    mechanism: str


class SaslHandshakeResponse(Message):
    """Whether it may, and what the broker offers."""

    error_code: ErrorCode
    mechanisms: list[str]


def refuse(request: SaslHandshakeRequest, code: ErrorCode) -> SaslHandshakeResponse:
    """Answer with the code and no mechanisms."""
    return SaslHandshakeResponse(error_code=code, mechanisms=[])


SASL_HANDSHAKE = Api(
    key=17,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
    versions=range(2),
    flexible=None,
    refuse=refuse,
)
