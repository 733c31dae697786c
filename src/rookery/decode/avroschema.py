"""Avro schemas: from JSON text to a graph of types, with names, aliases and defaults.

It follows the specification of Avro 1.12, "Schema Declaration". As required there, logical types
that are unknown or do not match their underlying type are ignored.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from rookery.errors import ConfigError

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_LOGICAL: Final = {
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-micros": {"long"},
    "timestamp-nanos": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-micros": {"long"},
    "local-timestamp-nanos": {"long"},
    "decimal": {"bytes", "fixed"},
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_MAX_DEPTH: Final = 64
_MAX_FIXED: Final = 1 << 24
MISSING: Final = object()
"""The default of a field without a default; None is a valid default."""


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    default: Any = MISSING
    aliases: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class AvroType:
    """A type; named types can be recursive."""

    kind: str
    name: str = ""
    """The full name of a record, enum or fixed."""

    aliases: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """The symbol that replaces symbols unknown to the reader."""

    fields: list[AvroField] = field(default_factory=list)
    items: AvroType | None = None
    """The item type of an array, or the value type of a map."""

    branches: list[AvroType] = field(default_factory=list)


def parse(text: str, named: dict[str, AvroType] | None = None) -> AvroType:
    """Parse a schema; `named` holds types that it may reference, and gains those it defines.

    Raises:
        ConfigError: it is not a schema; the text says where.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        # A bare name, such as `string`, is also a schema, with or without quotes.
        if text.strip() not in PRIMITIVES:
            raise ConfigError(f"Avro schema: not JSON: {error}") from None
        value = text.strip()
    return _Parser({} if named is None else named).type(value, "", 0)


class _Parser:
    def __init__(self, named: dict[str, AvroType]) -> None:
        self._named = named

    def type(  # noqa: PLR0911 (one for each kind of type)
        self, value: Any, space: str, depth: int
    ) -> AvroType:
        if depth > _MAX_DEPTH:
            raise ConfigError(f"Avro schema: nested more than {_MAX_DEPTH} deep")
        if isinstance(value, str):
            return self._reference(value, space)
        if isinstance(value, list):
            return self._union(value, space, depth)
        if not isinstance(value, dict) or "type" not in value:
            raise ConfigError(f"Avro schema: {_short(value)} is not a type")
        kind = value["type"]
        if not isinstance(kind, str):
            return self.type(kind, space, depth + 1)
        if kind in PRIMITIVES:
            return _with_logical(AvroType(kind), value)
        if kind in {"array", "map"}:
            inner = value.get("items" if kind == "array" else "values")
            return AvroType(kind, items=self.type(inner, space, depth + 1))
        if kind in {"record", "error", "enum", "fixed"}:
            return self._define(kind, value, space, depth)
        return self._reference(kind, space)

    def _reference(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        named = self._named.get(_full(name, space)) or self._named.get(name)
        if named is None:
            raise ConfigError(f"Avro schema: type {name!r} is not defined")
        return named

    def _union(self, value: list[Any], space: str, depth: int) -> AvroType:
        branches = [self.type(branch, space, depth + 1) for branch in value]
        keys = [branch.name or branch.kind for branch in branches]
        if any(branch.kind == "union" for branch in branches) or len(set(keys)) < len(keys):
            raise ConfigError(f"Avro schema: union {_short(value)} holds a union or a type twice")
        if not branches:
            raise ConfigError("Avro schema: a union has no branches")
        return AvroType("union", branches=branches)

    def _define(self, kind: str, value: dict[str, Any], space: str, depth: int) -> AvroType:
        given, inside = value.get("name"), value.get("namespace", space)
        if not isinstance(given, str) or not isinstance(inside, str) or not _NAME.fullmatch(given):
            raise ConfigError(f"Avro schema: {_short(value)} has no usable name")
        name = _full(given, inside)
        if name in self._named:
            raise ConfigError(f"Avro schema: type {name!r} is defined twice")
        space = name.rpartition(".")[0]
        aliases = tuple(_full(string, space) for string in _strings(value.get("aliases", ()), name))
        avro_type = AvroType("record" if kind == "error" else kind, name, aliases)
        self._named[name] = avro_type
        if kind == "fixed":
            return _with_logical(_sized(avro_type, value), value)
        if kind == "enum":
            return _with_symbols(avro_type, value)
        avro_type.fields = self._fields(name, value.get("fields"), space, depth)
        return avro_type

    def _fields(self, name: str, value: Any, space: str, depth: int) -> list[AvroField]:
        if not isinstance(value, list):
            raise ConfigError(f"Avro schema: record {name!r} has no list of fields")
        fields: dict[str, AvroField] = {}
        for item in value:
            given = item.get("name") if isinstance(item, dict) else None
            if not isinstance(given, str) or given in fields:
                raise ConfigError(
                    f"Avro schema: record {name!r}: field {_short(item)} has no own name"
                )
            kind = self.type(item.get("type"), space, depth + 1)
            aliases = tuple(_strings(item.get("aliases", ()), given))
            fields[given] = AvroField(given, kind, item.get("default", MISSING), aliases)
        return list(fields.values())


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _strings(value: Any, what: str) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"Avro schema: {what!r}: {_short(value)} is not a list of names")
    return list(value)


def _sized(avro_type: AvroType, value: dict[str, Any]) -> AvroType:
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_FIXED:
        raise ConfigError(
            f"Avro schema: fixed {avro_type.name!r}: size {_short(size)} is out of range"
        )
    avro_type.size = size
    return avro_type


def _with_symbols(avro_type: AvroType, value: dict[str, Any]) -> AvroType:
    avro_type.symbols = tuple(_strings(value.get("symbols"), avro_type.name))
    default = value.get("default")
    if len(set(avro_type.symbols)) < len(avro_type.symbols):
        raise ConfigError(f"Avro schema: enum {avro_type.name!r} has a symbol twice")
    if default is not None and default not in avro_type.symbols:
        raise ConfigError(
            f"Avro schema: enum {avro_type.name!r}: default {_short(default)} is not a symbol"
        )
    avro_type.default = default
    return avro_type


def _with_logical(avro_type: AvroType, value: dict[str, Any]) -> AvroType:
    logical = value.get("logicalType")
    if not isinstance(logical, str) or avro_type.kind not in _LOGICAL.get(logical, ()):
        return avro_type
    if logical == "decimal":
        precision, scale = value.get("precision"), value.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return avro_type
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            return avro_type
        avro_type.precision, avro_type.scale = precision, scale
    avro_type.logical = logical
    return avro_type


def _short(value: Any) -> str:
    return repr(value)[:80]
