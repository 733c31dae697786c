"""Envelope (key 58): a broker passes a client's request on to the controller (KIP-590).

The broker vouches for the client's identity and address. The controller answers as if it had been
asked directly, and the broker unwraps the answer for the client.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message


class EnvelopeRequest(Message):
    """A whole request, header included, with its sender."""

    request_data: bytes
    request_principal: bytes | None  # written by the broker's principal builder
    client_host_address: bytes  # 4 or 16 bytes


class EnvelopeResponse(Message):
    """A whole response, header included, unless the envelope itself was refused."""

    response_data: bytes | None = None
    error_code: ErrorCode  # of the envelope; the response has its own


def refuse(request: EnvelopeRequest, code: ErrorCode) -> EnvelopeResponse:
    """Answer with the code and nothing inside."""
    return EnvelopeResponse(error_code=code)


ENVELOPE = Api(
    key=58,
    request=EnvelopeRequest,
    response=EnvelopeResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
