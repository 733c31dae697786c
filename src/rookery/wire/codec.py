"""Messages to bytes and back, in any version.

`decode` and `encode` run the tables of `wire.table` through the compiled interpreter, or through
its Python twin where that was not built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rookery import native
from rookery.errors import ApiError, ErrorCode, ProtocolError
from rookery.wire.buffer import Buffer
from rookery.wire.message import Message
from rookery.wire.table import NO_LIMIT, Table, table

if TYPE_CHECKING:
    from rookery.wire import _codec as _engine
else:
    _engine = native.load("rookery.wire._codec", "rookery.wire._twin")

M = TypeVar("M", bound=Message)

_tables: dict[tuple[type[Message], int], Table] = {}


def table_of(message: type[Message], version: int) -> Table:
    """Return the table for one version of a message that stands alone.

    Raises:
        ApiError: UNSUPPORTED_VERSION, if there is no definition of that version.
    """
    found = _tables.get((message, version))
    return found or _make_table(message, version)


def decode(message: type[M], version: int, buffer: Buffer) -> M:
    """Read a message that fills the whole buffer; records are views into it.

    Raises:
        ProtocolError: the bytes are no such message; the text names the field.
    """
    body, end = decode_at(message, version, buffer, 0)
    if end != len(buffer):
        raise ProtocolError(
            f"{message.__name__} v{version}: {len(buffer) - end} bytes left over behind it"
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


def _make_table(message: type[Message], version: int) -> Table:
    if message.VERSIONS is None or version not in message.VERSIONS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{message.__name__} version {version} is not among {message.VERSIONS}",
        )
    flexible = message.FLEXIBLE is not None and version >= message.FLEXIBLE
    made = _tables[message, version] = table(message, version, flexible)
    return made
