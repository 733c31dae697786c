"""The codec in pure Python: the fallback without a compiler, and the oracle of `_codec.pyx`.

It has the same functions, reads the same tables and raises the same errors as the compiled codec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rookery.errors import ErrorCode, ProtocolError
from rookery.wire.buffer import (
    Buffer,
    FrameReader,
    write_f64,
    write_i16,
    write_i32,
    write_i64,
    write_u16,
    write_u32,
    write_uvarint,
)
from rookery.wire.message import Message, Parts, Type
from rookery.wire.table import FIXED_SIZES, MAX_TAGS, NO_LIMIT, PART_BYTES, FieldStep, WireTable


def read(
    table: WireTable, buffer: Buffer, position: int, max_elements: int = NO_LIMIT
) -> tuple[Message, int]:
    """Read one message that begins at `position`; return it and the position of its end."""
    reader = FrameReader(buffer, position)
    reader.elements = max_elements
    return _read_struct(table, reader), reader.position


def write(table: WireTable, message: Message) -> list[Buffer]:
    """Write one message as a list of parts."""
    writer = _Writer()
    _write_struct(table, message, writer)
    return writer.finish()


def write_frame(
    head: WireTable, header: Message, table: WireTable, message: Message
) -> list[Buffer]:
    """Encode a header and a message after their common length, as a list of parts."""
    writer = _Writer()
    writer.out += bytes(4)
    _write_struct(head, header, writer)
    _write_struct(table, message, writer)
    parts = writer.finish()
    size = sum(len(part) for part in parts) - 4
    if size > 0x7FFFFFFF:
        raise ValueError(f"{type(message).__name__}: a frame of {size} bytes is over 2 GiB")
    first = bytearray(parts[0])
    first[:4] = size.to_bytes(4, "big")
    parts[0] = bytes(first)
    return parts


def _read_struct(table: WireTable, reader: FrameReader) -> Message:
    message = table.message.__new__(table.message)
    message.unknown_tags = None
    for step in table.steps:
        try:
            value = _READ[step.type](step, reader)
        except ProtocolError as error:
            raise _add_field(error, table, step) from None
        setattr(message, step.name, value)
    for step in table.absent:
        setattr(message, step.name, step.factory() if step.factory else step.default)
    if table.flexible:
        try:
            _read_tags(table, message, reader)
        except ProtocolError as error:
            raise _add_field(error, table) from None
    return message


class _NamedError(ProtocolError):
    """An error that already names its field."""


def _add_field(
    error: ProtocolError, table: WireTable, step: FieldStep | None = None
) -> ProtocolError:
    """Add the name of the field to an error, once, at the innermost structure."""
    if isinstance(error, _NamedError):
        return error
    place = table.message.__name__ if step is None else f"{table.message.__name__}.{step.name}"
    return _NamedError(f"{place}: {error}")


def _read_tags(table: WireTable, message: Message, reader: FrameReader) -> None:
    for step in table.tagged.values():
        setattr(message, step.name, step.factory() if step.factory else step.default)
    count = reader.uvarint()
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields, {MAX_TAGS} at most")
    last = -1
    for _ in range(count):
        tag, size = reader.uvarint(), reader.uvarint()
        if tag <= last:
            raise ProtocolError(f"tag {tag} after tag {last}")
        last = tag
        _read_tag(table, message, reader, (tag, size))


def _read_tag(
    table: WireTable, message: Message, reader: FrameReader, head: tuple[int, int]
) -> None:
    tag, size = head
    if size > reader.remaining:
        raise ProtocolError(f"tag {tag} has {size} bytes, {reader.remaining} left")
    step = table.tagged.get(tag)
    if step is None:
        if message.unknown_tags is None:
            message.unknown_tags = {}
        message.unknown_tags[tag] = bytes(reader.take(size))
        return
    end = reader.position + size
    inner = FrameReader(reader.view[:end], reader.position)
    inner.elements = reader.elements
    try:
        setattr(message, step.name, _READ[step.type](step, inner))
    except ProtocolError as error:
        raise _add_field(error, table, step) from None
    reader.elements = inner.elements
    if inner.position != end:
        raise _add_field(ProtocolError("its tag has bytes left over"), table, step)
    reader.position = end


def _length(step: FieldStep, reader: FrameReader, *, short: bool, what: str) -> int:
    """Read a length or count; -1 is null."""
    if step.compact:
        size = reader.uvarint() - 1
    elif short:
        size = reader.i16()
    else:
        size = reader.i32()
    if size < -1:
        raise ProtocolError(f"a {what} of length {size}")
    if size == -1 and not step.nullable:
        raise ProtocolError(f"null, but this {what} cannot be null")
    return size


def _take_sized(
    step: FieldStep, reader: FrameReader, *, short: bool, what: str
) -> memoryview | None:
    size = _length(step, reader, short=short, what=what)
    if size < 0:
        return None
    if size > reader.remaining:
        raise ProtocolError(f"a {what} of {size} bytes, {reader.remaining} left")
    return reader.take(size)


def _read_bool(_: FieldStep, reader: FrameReader) -> bool:
    return reader.i8() != 0


def _read_uuid(_: FieldStep, reader: FrameReader) -> bytes:
    return bytes(reader.take(16))


def _read_error(_: FieldStep, reader: FrameReader) -> ErrorCode:
    return ErrorCode(reader.i16())


def _text(view: memoryview) -> str:
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("a string that is not UTF-8") from None


def _read_string(step: FieldStep, reader: FrameReader) -> str | None:
    view = _take_sized(step, reader, short=True, what="string")
    return None if view is None else _text(view)


def _read_bytes(step: FieldStep, reader: FrameReader) -> bytes | None:
    view = _take_sized(step, reader, short=False, what="byte string")
    return None if view is None else bytes(view)


def _read_records(step: FieldStep, reader: FrameReader) -> memoryview | None:
    return _take_sized(step, reader, short=False, what="byte string")


def _read_inner(step: FieldStep, reader: FrameReader) -> Message | None:
    assert step.table is not None  # noqa: S101 (a STRUCT step has a table)
    # After a tag Kafka writes 0 and 1 for null and not null; elsewhere -1 and 1.
    if step.nullable and (reader.uvarint() == 0 if step.tag >= 0 else reader.i8() < 0):
        return None
    return _read_struct(step.table, reader)


def _read_array(step: FieldStep, reader: FrameReader) -> list[Any] | None:
    count = _length(step, reader, short=False, what="array")
    if count < 0:
        return None
    least = max(_element_min(step), 1)
    if count > reader.remaining // least:
        raise ProtocolError(f"an array of {count} elements, {reader.remaining} bytes left")
    reader.elements -= count
    if reader.elements < 0:
        raise ProtocolError("more array elements than one message may have")
    if step.table is not None:
        table = step.table
        return [_read_struct(table, reader) for _ in range(count)]
    element = _Element(step)
    function = _READ[element.type]
    return [function(element, reader) for _ in range(count)]  # type: ignore[arg-type] # has a Step's attributes


def _element_min(step: FieldStep) -> int:
    if step.table is not None:
        return step.table.min_size
    return FIXED_SIZES.get(step.element, 1 if step.compact else 2)  # type: ignore[arg-type]


class _Element:
    """An array's element as a step: like its array, but never null."""

    __slots__ = ("compact", "name", "nullable", "type")

    def __init__(self, step: FieldStep) -> None:
        assert step.element is not None  # noqa: S101 (only arrays come here)
        self.name = step.name
        self.type = step.element
        self.compact = step.compact
        self.nullable = False


_READ: Final[dict[Type, Callable[[FieldStep, FrameReader], Any]]] = {
    Type.BOOL: _read_bool,
    Type.I8: lambda _, reader: reader.i8(),
    Type.I16: lambda _, reader: reader.i16(),
    Type.I32: lambda _, reader: reader.i32(),
    Type.I64: lambda _, reader: reader.i64(),
    Type.U16: lambda _, reader: reader.u16(),
    Type.U32: lambda _, reader: reader.u32(),
    Type.F64: lambda _, reader: reader.f64(),
    Type.UUID: _read_uuid,
    Type.ERROR: _read_error,
    Type.STRING: _read_string,
    Type.BYTES: _read_bytes,
    Type.RECORDS: _read_records,
    Type.STRUCT: _read_inner,
    Type.ARRAY: _read_array,
}


class _Writer:
    """The bytes of the current part, and the finished parts before it."""

    __slots__ = ("out", "parts")

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.out = bytearray()

    def append(self, piece: Buffer) -> None:
        """Add a long piece as its own part, a short one to the current part."""
        if len(piece) < PART_BYTES:
            self.out += piece
            return
        self.flush()
        self.parts.append(piece)

    def flush(self) -> None:
        if self.out:
            self.parts.append(bytes(self.out))
            self.out = bytearray()

    def finish(self) -> list[Buffer]:
        self.flush()
        return self.parts


def _write_struct(table: WireTable, message: Message, writer: _Writer) -> None:
    if type(message) is not table.message:
        raise TypeError(f"a {type(message).__name__} where a {table.message.__name__} belongs")
    for step in table.steps:
        try:
            _WRITE[step.type](step, getattr(message, step.name), writer)
        except _Misfit as misfit:
            raise ValueError(f"{table.message.__name__}.{step.name}: {misfit}") from None
    if table.flexible:
        _write_tags(table, message, writer)


def _write_tags(table: WireTable, message: Message, writer: _Writer) -> None:
    tags: dict[int, bytes] = dict(message.unknown_tags or ())
    for tag, step in table.tagged.items():
        value = getattr(message, step.name)
        if not is_default(step, value):
            tags[tag] = _tag_bytes(table, step, value)
    write_uvarint(writer.out, len(tags))
    for tag in sorted(tags):
        write_uvarint(writer.out, tag)
        write_uvarint(writer.out, len(tags[tag]))
        writer.out += tags[tag]


def _tag_bytes(table: WireTable, step: FieldStep, value: Any) -> bytes:
    inner = _Writer()
    try:
        _WRITE[step.type](step, value, inner)
    except _Misfit as misfit:
        raise ValueError(f"{table.message.__name__}.{step.name}: {misfit}") from None
    return b"".join(inner.finish())


def is_default(step: FieldStep, value: Any) -> bool:
    """Whether a tagged field holds its default value."""
    return bool(value == step.default)


class _Misfit(Exception):  # noqa: N818 (never leaves this module)
    """A value that does not fit its field."""


def _integer(low: int, high: int, put: Callable[[bytearray, int], None]) -> Callable[..., None]:
    def write_integer(_: FieldStep, value: Any, writer: _Writer) -> None:
        if not isinstance(value, int):
            raise _Misfit(f"{type(value).__name__}, where a number belongs")
        if not low <= value <= high:
            raise _Misfit(f"{value} is not between {low} and {high}")
        put(writer.out, value)

    return write_integer


def _write_length(step: FieldStep, size: int, writer: _Writer, *, short: bool) -> None:
    if step.compact:
        write_uvarint(writer.out, size + 1)
    elif short:
        if size > 0x7FFF:
            raise _Misfit(f"{size} bytes, 32767 at most")
        write_i16(writer.out, size)
    else:
        write_i32(writer.out, size)


def _write_null(step: FieldStep, writer: _Writer, *, short: bool) -> None:
    if not step.nullable:
        raise _Misfit("None, but it cannot be null in this version")
    _write_length(step, -1, writer, short=short)


def _write_bool(_: FieldStep, value: Any, writer: _Writer) -> None:
    writer.out.append(1 if value else 0)


def _write_f64(_: FieldStep, value: Any, writer: _Writer) -> None:
    if not isinstance(value, int | float):
        raise _Misfit(f"{type(value).__name__}, where a number belongs")
    write_f64(writer.out, value)


def _write_uuid(_: FieldStep, value: Any, writer: _Writer) -> None:
    if not isinstance(value, bytes) or len(value) != 16:
        raise _Misfit("not the 16 bytes of a uuid")
    writer.out += value


def _write_string(step: FieldStep, value: Any, writer: _Writer) -> None:
    if value is None:
        return _write_null(step, writer, short=True)
    if not isinstance(value, str):
        raise _Misfit(f"{type(value).__name__}, where a string belongs")
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise _Misfit("a string with a lone surrogate") from None
    _write_length(step, len(data), writer, short=True)
    writer.out += data
    return None


def _write_bytes(step: FieldStep, value: Any, writer: _Writer) -> None:
    if value is None:
        return _write_null(step, writer, short=False)
    if isinstance(value, Parts):
        _write_length(step, sum(len(_flat(piece)) for piece in value), writer, short=False)
        for piece in value:
            writer.append(_flat(piece))
        return None
    data = _flat(value)
    _write_length(step, len(data), writer, short=False)
    writer.append(data)
    return None


def _flat(value: Any) -> Buffer:
    """Return a buffer whose `len` is its size in bytes."""
    if isinstance(value, bytes | bytearray):
        return value
    if not isinstance(value, memoryview):
        raise _Misfit(f"{type(value).__name__}, where bytes belong")
    if not value.c_contiguous:
        raise _Misfit("a view with gaps")
    return value if value.format == "B" and value.ndim == 1 else value.cast("B")


def _write_inner(step: FieldStep, value: Any, writer: _Writer) -> None:
    assert step.table is not None  # noqa: S101 (a STRUCT step has a table)
    if step.nullable:
        null = 0 if step.tag >= 0 else 0xFF
        writer.out.append(null if value is None else 1)
        if value is None:
            return
    elif value is None:
        raise _Misfit("None, but it cannot be null in this version")
    _write_struct(step.table, value, writer)


def _write_array(step: FieldStep, value: Any, writer: _Writer) -> None:
    if value is None:
        return _write_null(step, writer, short=False)
    if not isinstance(value, list | tuple):
        raise _Misfit(f"{type(value).__name__}, where a list belongs")
    _write_length(step, len(value), writer, short=False)
    if step.table is not None:
        for item in value:
            _write_struct(step.table, item, writer)
        return None
    element = _Element(step)
    function = _WRITE[element.type]
    for item in value:
        function(element, item, writer)
    return None


_WRITE: Final[dict[Type, Callable[..., None]]] = {
    Type.BOOL: _write_bool,
    Type.I8: _integer(-(2**7), 2**7 - 1, lambda out, value: out.append(value & 0xFF)),
    Type.I16: _integer(-(2**15), 2**15 - 1, write_i16),
    Type.I32: _integer(-(2**31), 2**31 - 1, write_i32),
    Type.I64: _integer(-(2**63), 2**63 - 1, write_i64),
    Type.U16: _integer(0, 2**16 - 1, write_u16),
    Type.U32: _integer(0, 2**32 - 1, write_u32),
    Type.F64: _write_f64,
    Type.UUID: _write_uuid,
    Type.ERROR: _integer(-(2**15), 2**15 - 1, write_i16),
    Type.STRING: _write_string,
    Type.BYTES: _write_bytes,
    Type.RECORDS: _write_bytes,
    Type.STRUCT: _write_inner,
    Type.ARRAY: _write_array,
}
