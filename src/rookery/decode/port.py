"""What a decoder is: a binary column in, a typed column out, and a reason for each bad row.

A decoder never raises for what is in the data. What is to become of bad rows (null, a side table,
an error) is for the caller to say; here they are null in the result and named in `bad`.
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
"""The most letters of a reason: bad data shall not write long texts into dead letters."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be decoded, and why."""

    row: int
    reason: str
    schema_id: int | None = None
    """Which schema of the registry the row names, where that is known."""


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """A column of the decoder's type, as long as what went in; bad rows are null in it."""

    values: Array
    bad: tuple[BadRow, ...] = ()
    """In the order of their rows."""


class Decoder(Protocol):
    """Turns binary columns into columns of one type."""

    @property
    def type(self) -> pa.DataType:
        """The type of every result: known before any data is."""

    def decode(self, column: Array) -> DecodeResult:
        """Decode a binary column; nulls stay null and are not bad.

        Raises:
            Unavailable: a schema registry is out of reach, which is not the data's fault.
        """


Function = Callable[[Array], Array]
"""A decoder of one's own: called once a batch, with a binary column that has no nulls."""


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """What a decoder is made from; plain values, so that it can travel to other processes."""

    schema: str | bytes | pa.Schema | None = None
    """The schema: DDL text or an Arrow schema, an Avro schema as JSON text, or a Protobuf
    FileDescriptorSet as bytes. For Avro and with a registry it is what readers want to see."""

    registry: SchemaRegistry | None = None
    """Where the schemas of framed values (a zero byte, an id of 4 bytes) are asked for."""

    subject: str | None = None
    """Whose schema readers want to see, if `schema` does not say it, such as `orders-value`."""

    version: int | None = None
    """Which version of the subject; None: the latest there is when the decoder is opened."""

    message: str | None = None
    """The full name of a Protobuf message; None: the first of its file."""

    function: str | Function | None = field(default=None)
    """For the decoder `python`: a function, or where to find it (`package.module:name`)."""


def bad_row(row: int, reason: str, schema_id: int | None = None) -> BadRow:
    """Make a bad row with a reason of bounded length, and without what no terminal should see."""
    printable = "".join(letter if letter.isprintable() else "�" for letter in reason[:MAX_REASON])
    shortened = printable if len(reason) <= MAX_REASON else printable[: MAX_REASON - 1] + "…"
    return BadRow(row, shortened, schema_id)
