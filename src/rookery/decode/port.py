"""The decoder interface: a binary column in, a typed column and the bad rows with reasons out.

A decoder never raises because of the data. The caller decides about bad rows (null, a side table,
an error); here they are null in the result and listed in `bad`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from rookery.decode.registry import SchemaRegistry

Array: TypeAlias = "pa.Array[Any]"
"""A column; the name is for type checkers, since Arrow's own class takes no brackets."""

MAX_REASON: Final = 300
"""The maximum length of a reason, so that bad data does not fill dead letters with long texts."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be decoded, and the reason."""

    row: int
    reason: str
    schema_id: int | None = None
    """The registry's schema id of the row, if known."""


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """A column of the decoder's type, as long as the input; bad rows are null."""

    values: Array
    bad: tuple[BadRow, ...] = ()
    """In row order."""


class Decoder(Protocol):
    """Converts binary columns to columns of one type."""

    @property
    def type(self) -> pa.DataType:
        """The type of every result, known before any data."""

    def decode(self, column: Array) -> DecodeResult:
        """Decode a binary column; nulls stay null and are not bad.

        Raises:
            Unavailable: a schema registry cannot be reached, which is not an error in the data.
        """


Function = Callable[[Array], Array]
"""A user-defined decoder: called once per batch, with a binary column without nulls."""


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """The settings of a decoder; plain values, so that they can be sent to other processes."""

    schema: str | bytes | pa.Schema | None = None
    """The schema: DDL text or an Arrow schema, an Avro schema as JSON text, or a Protobuf
    FileDescriptorSet as bytes. For Avro and with a registry it is the reader's schema."""

    registry: SchemaRegistry | None = None
    """The registry for the schemas of framed values (a zero byte, an id of 4 bytes)."""

    subject: str | None = None
    """The subject of the reader's schema, if `schema` is not set, such as `orders-value`."""

    version: int | None = None
    """The version of the subject; None: the latest one when the decoder is opened."""

    message: str | None = None
    """The full name of a Protobuf message; None: the first of its file."""

    function: str | Function | None = field(default=None)
    """For the decoder `python`: a function, or its location (`package.module:name`)."""


def bad_row(row: int, reason: str, schema_id: int | None = None) -> BadRow:
    """Create a bad row with a reason of limited length, without unprintable characters."""
    printable = "".join(letter if letter.isprintable() else "�" for letter in reason[:MAX_REASON])
    shortened = printable if len(reason) <= MAX_REASON else printable[: MAX_REASON - 1] + "…"
    return BadRow(row, shortened, schema_id)
