"""Encodes and decodes messages, their headers, and whole frames, in any version.

`decode` and `encode` run the tables of `wire.table` through the compiled interpreter, or through
its Python twin where that was not built.

A request header is version 2 where the API's version is flexible, else version 1. A response
header is version 1 or 0 likewise. ApiVersions is the exception: its response header is always
version 0, because a client sends it before it knows what the broker can read.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, TypeVar

from rookery import native
from rookery.errors import ApiError, ErrorCode, ProtocolError
from rookery.wire.buffer import Buffer
from rookery.wire.message import Api, Message, Request, Response, field, i16, i32
from rookery.wire.table import NO_LIMIT, WireTable, table

__all__ = [
    "RequestHeader",
    "ResponseHeader",
    "correlation_id",
    "decode",
    "decode_at",
    "encode",
    "encode_bytes",
    "encode_frame",
    "peek",
    "read_header",
    "read_request",
    "read_response",
    "request_frame",
    "response_frame",
]

if TYPE_CHECKING:
    from rookery.wire import _codec as _engine
else:
    _engine = native.load("rookery.wire._codec", "rookery.wire._twin")

M = TypeVar("M", bound=Message)

_tables: dict[tuple[type[Message], int], WireTable] = {}


def table_of(message: type[Message], version: int) -> WireTable:
    """Return the table for one version of a message that stands alone.

    Raises:
        ApiError: UNSUPPORTED_VERSION, if there is no definition of that version.
    """
    known = _tables.get((message, version))
    return known or _make_table(message, version)


def decode(message: type[M], version: int, buffer: Buffer) -> M:
    """Read a message that fills the whole buffer; records are views into it.

    Raises:
        ProtocolError: the bytes are no such message; the text names the field.
    """
    body, end = decode_at(message, version, buffer, 0)
    if end != len(buffer):
        raise ProtocolError(
            f"{message.__name__} v{version}: {len(buffer) - end} bytes left over after it"
        )
    return body


def decode_at(
    message: type[M], version: int, buffer: Buffer, position: int, max_elements: int = NO_LIMIT
) -> tuple[M, int]:
    """Read a message that begins at `position`; return it and where it ends.

    With `max_elements` it is refused if its arrays have more elements than that in all.
    """
    try:
        body, end = _engine.read(table_of(message, version), buffer, position, max_elements)
    except ProtocolError as error:
        raise ProtocolError(f"{message.__name__} v{version}: {error}") from None
    return body, end  # type: ignore[return-value] # the table makes this very class


def encode(message: Message, version: int) -> list[Buffer]:
    """Write a message as a list of parts; long records are passed on, not copied.

    Fields that `version` does not have are left out.

    Raises:
        ValueError: a value does not fit its field; the text names it.
    """
    cls = type(message)
    return _engine.write(_tables.get((cls, version)) or _make_table(cls, version), message)


def encode_bytes(message: Message, version: int) -> bytes:
    """Write a message as one piece."""
    return b"".join(encode(message, version))


def encode_frame(header: Message, header_version: int, body: Message, version: int) -> list[Buffer]:
    """Write length, header and body as a list of parts, ready for a socket."""
    head = table_of(type(header), header_version)
    return _engine.write_frame(head, header, table_of(type(body), version), body)


def _make_table(message: type[Message], version: int) -> WireTable:
    if message.VERSIONS is None or version not in message.VERSIONS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{message.__name__} version {version} is not among {message.VERSIONS}",
        )
    flexible = message.FLEXIBLE is not None and version >= message.FLEXIBLE
    made = _tables[message, version] = table(message, version, flexible)
    return made


API_VERSIONS_KEY = 18
_BEGINNING = Struct(">hhi")  # key, version and correlation id of any request
# Three bytes can be an element that takes a hundred in memory and a microsecond to make. No client
# asks for as many things at once as this; more would keep all others waiting.
MAX_REQUEST_ELEMENTS = 100_000


class RequestHeader(Message, versions=range(1, 3), flexible=2):
    """The header of every request."""

    api_key: i16
    api_version: i16
    correlation_id: i32
    # The one string that stays in its old form in flexible versions, so that a broker can read it
    # whatever the version.
    client_id: str | None = field(default=None, compact=False)


class ResponseHeader(Message, versions=range(2), flexible=1):
    """The header of every response."""

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
    """Read a whole request; ignore bytes after it, as Kafka does.

    For example, librdkafka 2.16 sends one byte too many after AlterUserScramCredentials.

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
    header_version = response_header_version(api, version)
    start = 4 + header_version
    if len(frame) < start or (header_version and frame[4]):
        # It is too short, or its header has tagged fields, which brokers do not send.
        _, start = decode_at(ResponseHeader, header_version, frame, 0)
    body, end = decode_at(api.response, version, frame, start)
    if end != len(frame):
        raise ProtocolError(
            f"{api.response.__name__} v{version}: {len(frame) - end} bytes left over after it"
        )
    return body


def response_frame(
    api: Api[Request, Response], version: int, correlation_id: int, body: Response
) -> list[Buffer]:
    """Write a whole response, length first, as parts for a socket."""
    header = ResponseHeader(correlation_id=correlation_id)
    return encode_frame(header, response_header_version(api, version), body, version)
