"""Parses schemas in Spark's text format: `id long, name string, at timestamp`.

    fields  := name type (, name type)*           a colon may stand between name and type
    type    := long | decimal(10,2) | array<type> | map<type,type> | struct<fields> | …

Every field is nullable: data of other writers gives no guarantees.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from rookery.errors import ConfigError

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:]|\S)")
_MAX_DEPTH: Final = 32
_MAX_LETTERS: Final = 1 << 20


def parse(text: str) -> pa.Schema:
    """Parse a schema.

    Raises:
        ConfigError: the text is not a schema; the error says where.
    """
    if len(text) > _MAX_LETTERS:
        raise ConfigError(f"schema: {len(text)} letters are too long; {_MAX_LETTERS} are allowed")
    reader = _Reader(text)
    fields = reader.fields("")
    return pa.schema(fields)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        self._depth = 0

    def fields(self, end: str) -> list[pa.Field[pa.DataType]]:
        by_name: dict[str, pa.Field[pa.DataType]] = {}
        while True:
            name = self._name()
            if self._peek() == ":":
                self._next()
            if name in by_name:
                raise self._wrong(f"field {name!r} is named twice")
            by_name[name] = pa.field(name, self.type())
            if self._peek() != ",":
                break
            self._next()
        self._expect(end)
        return list(by_name.values())

    def type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._wrong(f"nested more than {_MAX_DEPTH} deep")
        word = self._next().lower()
        kind = _SIMPLE.get(word) or self._read_composed(word)
        self._depth -= 1
        return kind

    def _read_composed(self, word: str) -> pa.DataType:
        if word in {"decimal", "dec", "numeric"}:
            return self._decimal()
        if word not in {"array", "map", "struct"}:
            raise self._wrong(f"{word!r} is not a type")
        self._expect("<")
        if word == "struct":
            return pa.struct(self.fields(">"))
        first = self.type()
        if word == "array":
            self._expect(">")
            return pa.list_(first)
        self._expect(",")
        second = self.type()
        self._expect(">")
        return pa.map_(first, second)

    def _decimal(self) -> pa.DataType:
        if self._peek() != "(":
            return pa.decimal128(10, 0)
        self._next()
        precision, scale = self._number(), 0
        if self._peek() == ",":
            self._next()
            scale = self._number()
        self._expect(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise self._wrong(f"decimal({precision},{scale}) is out of range")
        return pa.decimal128(precision, scale)

    def _name(self) -> str:
        token = self._next()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not token.isidentifier():
            raise self._wrong(f"{token!r} is not a name; put unusual ones in backticks")
        return token

    def _number(self) -> int:
        token = self._next()
        if not token.isdecimal() or len(token) > 3:
            raise self._wrong(f"{token!r} is not a small number")
        return int(token)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._wrong("it ends too early")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._wrong(f"{token or 'the end'!r} expected, {self._peek()!r} found")
        self._at += 1

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"schema {self._text[:200]!r}: {what} (at word {self._at + 1})")
