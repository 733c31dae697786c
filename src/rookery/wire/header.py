"""Request and response headers, and whole frames made of a header and a body.

A request header is version 2 where the API's version is flexible, else version 1; a response
header is version 1 or 0 likewise. ApiVersions is the exception: its response header is always
version 0, because a client asks before it knows what the broker can read.
"""

from __future__ import annotations

from struct import Struct

from rookery.errors import ProtocolError
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode_at, encode_frame
from rookery.wire.message import Api, Message, Request, Response, field, i16, i32

API_VERSIONS_KEY = 18
_BEGINNING = Struct(">hhi")  # key, version and correlation id of any request
# Three bytes can be an element that takes a hundred in memory and a microsecond to make. No client
# asks for as many things at once as this; more would keep all others waiting.
MAX_REQUEST_ELEMENTS = 100_000


class RequestHeader(Message, versions=range(1, 3), flexible=2):
    """What stands before every request."""

    api_key: i16
    api_version: i16
    correlation_id: i32
    # The one string that stays in its old form in flexible versions, so that a broker can read it
    # whatever the version.
    client_id: str | None = field(default=None, compact=False)


class ResponseHeader(Message, versions=range(2), flexible=1):
    """What stands before every response."""

    correlation_id: i32


def request_header_version(api: Api[Request, Response], version: int) -> int:
    """Return the version of the header before such a request."""
    return 2 if api.is_flexible(version) else 1


def response_header_version(api: Api[Request, Response], version: int) -> int:
    """Return the version of the header before such a response."""
    return 1 if api.key != API_VERSIONS_KEY and api.is_flexible(version) else 0


def peek(frame: Buffer) -> tuple[int, int, int]:
    """Return API key, version and correlation id, which stand first in any request."""
    if len(frame) < 8:
        raise ProtocolError(f"a request of {len(frame)} bytes; its header alone has 8")
    key, version, correlation = _BEGINNING.unpack_from(frame)
    return key, version, correlation


def read_header(api: Api[Request, Response], frame: Buffer) -> tuple[RequestHeader, int]:
    """Read a request's header; return it and where the body begins."""
    _, version, _ = peek(frame)
    return decode_at(RequestHeader, request_header_version(api, version), frame, 0)


def read_request(api: Api[Request, Response], frame: Buffer) -> tuple[RequestHeader, Request]:
    """Read a whole request; bytes behind it are not looked at, as Kafka does not.

    librdkafka 2.16 puts one too many behind AlterUserScramCredentials, for one.

    Raises:
        ProtocolError: the frame is no such request.
        ApiError: UNSUPPORTED_VERSION, if we have no definition of its version.
    """
    header, start = read_header(api, frame)
    body, _ = decode_at(api.request, header.api_version, frame, start, MAX_REQUEST_ELEMENTS)
    return header, body


def is_one_way(api: Api[Request, Response], frame: Buffer) -> bool:
    """Whether the client of a request reads no answer; the request is read only if it matters.

    Raises:
        ProtocolError: the frame is no such request.
        ApiError: UNSUPPORTED_VERSION, if we have no definition of its version.
    """
    return api.has_one_way_requests and api.is_one_way(read_request(api, frame)[1])


def request_frame(
    api: Api[Request, Response],
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: Request,
) -> list[Buffer]:
    """Write a whole request, length first, as parts for a socket."""
    header = RequestHeader(
        api_key=api.key, api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode_frame(header, request_header_version(api, version), body, version)


def correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response, which stands first whatever the header's version."""
    if len(frame) < 4:
        raise ProtocolError(f"a response of {len(frame)} bytes; its header alone has 4")
    return int.from_bytes(memoryview(frame)[:4], "big", signed=True)


def read_response(api: Api[Request, Response], version: int, frame: Buffer) -> Response:
    """Read a whole response to a request that was sent in `version`."""
    _, start = decode_at(ResponseHeader, response_header_version(api, version), frame, 0)
    body, end = decode_at(api.response, version, frame, start)
    if end != len(frame):
        raise ProtocolError(
            f"{api.response.__name__} v{version}: {len(frame) - end} bytes left over behind it"
        )
    return body


def response_frame(
    api: Api[Request, Response], version: int, correlation_id: int, body: Response
) -> list[Buffer]:
    """Write a whole response, length first, as parts for a socket."""
    header = ResponseHeader(correlation_id=correlation_id)
    return encode_frame(header, response_header_version(api, version), body, version)
