"""Builds the kernel's plan and the Arrow type from a writer's and a reader's Avro schema.

It follows "Schema Resolution" of the specification. A union of null and one other type becomes that
type, nullable. Other unions become a struct with one member per branch (`member0`, `member1`, … as
in Spark), of which one is set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from rookery.decode import avrovalue
from rookery.decode.avrokernel import AvroKind, Op
from rookery.decode.avroschema import MISSING, AvroField, AvroType
from rookery.errors import ConfigError

_MAX_DEPTH: Final = 64
_MAX_BUILDERS: Final = 10_000

_PLAIN: Final[dict[str, tuple[AvroKind, pa.DataType]]] = {
    "null": (AvroKind.NULL, pa.null()),
    "boolean": (AvroKind.BOOLEAN, pa.bool_()),
    "int": (AvroKind.INT32, pa.int32()),
    "long": (AvroKind.INT64, pa.int64()),
    "float": (AvroKind.FLOAT32, pa.float32()),
    "double": (AvroKind.FLOAT64, pa.float64()),
    "bytes": (AvroKind.BINARY, pa.binary()),
    "string": (AvroKind.TEXT, pa.string()),
}
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_NANOS: Final = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_PROMOTIONS: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_READS: Final = {
    "null": Op.NULL,
    "boolean": Op.BOOLEAN,
    "int": Op.INT,
    "long": Op.LONG,
    "float": Op.FLOAT,
    "double": Op.DOUBLE,
    "bytes": Op.BYTES,
    "string": Op.BYTES,
}

NodeSpec: TypeAlias = tuple[int, int, int, list[int], list[int], bytes]
"""A node in the kernel's format: op, builder, size, children, table, constant (see `_avro.pyi`)."""


@dataclass(slots=True, eq=False)
class AvroColumn:
    """A builder of the kernel, and the Arrow type of its buffers."""

    kind: AvroKind
    type: pa.DataType
    width: int = 0
    children: list[AvroColumn] = field(default_factory=list)
    index: int = -1
    symbols: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class AvroPlan:
    """The kernel's input, and the columns that its buffers become."""

    root: AvroColumn
    columns: list[AvroColumn]
    nodes: list[NodeSpec]


def columns_of(reader: AvroType) -> list[AvroColumn]:
    """Lay out the columns that a reader's schema fills, the root first.

    Raises:
        ConfigError: the type is recursive, which Arrow does not support.
    """
    columns: list[AvroColumn] = []
    _layout(reader, columns, ())
    return columns


def plan(writer: AvroType, reader: AvroType) -> AvroPlan:
    """Plan how values of the writer's schema are read as those of the reader's.

    Types that never match fail row by row, where they occur: an unused branch does no harm.

    Raises:
        ConfigError: the reader's schema is unusable.
    """
    columns = columns_of(reader)
    planner = _Planner()
    root = planner.read(writer, reader, columns[0])
    return AvroPlan(columns[0], columns, planner.number_nodes(root))


# ---- columns


def _layout(kind: AvroType, columns: list[AvroColumn], above: tuple[AvroType, ...]) -> AvroColumn:
    if kind in above or len(above) > _MAX_DEPTH:
        raise ConfigError(
            f"Avro schema: {kind.name or kind.kind!r} contains itself or is nested too "
            "deeply for a column: leave that field out of the reader's schema"
        )
    if len(columns) >= _MAX_BUILDERS:
        raise ConfigError(f"Avro schema: more than {_MAX_BUILDERS} columns")
    column = AvroColumn(AvroKind.NULL, pa.null(), index=len(columns))
    columns.append(column)
    below = (*above, kind)
    if kind.kind == "union":
        return _lay_union(kind, column, columns, below)
    if kind.kind == "record":
        column.children = [_layout(member.type, columns, below) for member in kind.fields]
        return _as_struct(column, [member.name for member in kind.fields])
    if kind.kind in {"array", "map"}:
        return _lay_items(kind, column, columns, below)
    return _lay_plain(kind, column)


def _lay_union(
    kind: AvroType, column: AvroColumn, columns: list[AvroColumn], above: tuple[AvroType, ...]
) -> AvroColumn:
    branches = _values(kind)
    if len(branches) == 1:
        # A nullable type has the column of the type itself.
        columns.pop()
        return _layout(branches[0], columns, above)
    column.children = [_layout(branch, columns, above) for branch in branches]
    if not branches:
        return column
    return _as_struct(column, [f"member{at}" for at in range(len(branches))])


def _values(union: AvroType) -> list[AvroType]:
    return [branch for branch in union.branches if branch.kind != "null"]


def _lay_items(
    kind: AvroType, column: AvroColumn, columns: list[AvroColumn], above: tuple[AvroType, ...]
) -> AvroColumn:
    assert kind.items is not None  # noqa: S101 (the parser saw to it)
    column.kind = AvroKind.LIST
    if kind.kind == "array":
        column.children = [_layout(kind.items, columns, above)]
        column.type = pa.list_(column.children[0].type)
        return column
    entries = AvroColumn(AvroKind.STRUCT, pa.null(), index=len(columns))
    columns.append(entries)
    key = AvroColumn(AvroKind.TEXT, pa.string(), index=len(columns))
    columns.append(key)
    value = _layout(kind.items, columns, above)
    entries.children = [key, value]
    entries.type = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", value.type)])
    column.children = [entries]
    column.type = pa.map_(pa.string(), value.type)
    return column


def _as_struct(column: AvroColumn, names: list[str]) -> AvroColumn:
    column.kind = AvroKind.STRUCT
    column.type = pa.struct(
        [(name, child.type) for name, child in zip(names, column.children, strict=True)]
    )
    return column


def _lay_plain(kind: AvroType, column: AvroColumn) -> AvroColumn:
    if kind.logical == "decimal":
        column.kind, column.width = AvroKind.DECIMAL, kind.precision
        column.type = pa.decimal128(kind.precision, kind.scale)
    elif kind.kind == "fixed":
        column.kind, column.width, column.type = AvroKind.FIXED, kind.size, pa.binary(kind.size)
    elif kind.kind == "enum":
        column.kind, column.type, column.symbols = AvroKind.INT32, pa.string(), kind.symbols
    else:
        column.kind, column.type = _PLAIN[kind.kind]
        column.type = _LOGICAL.get(kind.logical, column.type)
    return column


# ---- nodes


@dataclass(slots=True, eq=False)
class _Node:
    op: Op
    out: AvroColumn | None = None
    size: int = 0
    children: list[_Node] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    constant: bytes = b""


class _Planner:
    def __init__(self) -> None:
        # Recursive types can be skipped: their node is then its own descendant.
        self._skips: dict[AvroType, _Node] = {}

    def read(  # noqa: PLR0911 (one for each kind of type)
        self, writer: AvroType, reader: AvroType, out: AvroColumn
    ) -> _Node:
        """Build the node that reads the writer's type into the reader's column."""
        if writer.kind == "union":
            branches = [self.read(branch, reader, out) for branch in writer.branches]
            return _Node(Op.UNION, children=branches)
        if reader.kind == "union":
            return self._read_to_union(writer, reader, out)
        if not _matches(writer, reader):
            return self._fail(writer)
        if writer.kind == "record":
            return self._read_record(writer, reader, out)
        if writer.kind in {"array", "map"}:
            return self._read_items(writer, reader, out)
        if writer.kind == "enum":
            return _Node(Op.ENUM, out, table=_symbols(writer, reader))
        if writer.kind == "fixed":
            return _Node(Op.FIXED, out, writer.size)
        return _Node(_READS[writer.kind], out, _factor(writer, reader, out))

    def _read_to_union(self, writer: AvroType, reader: AvroType, out: AvroColumn) -> _Node:
        if writer.kind == "null":
            return _Node(Op.NULL, out) if _has_null(reader) else self._fail(writer)
        branches = _values(reader)
        at = _choose(writer, branches)
        if at is None:
            return self._fail(writer)
        if len(branches) == 1:
            return self.read(writer, branches[0], out)
        inner = self.read(writer, branches[at], out.children[at])
        return _Node(Op.MEMBER, out, at, [inner])

    def _read_record(self, writer: AvroType, reader: AvroType, out: AvroColumn) -> _Node:
        places = dict(zip((mine.name for mine in reader.fields), out.children, strict=True))
        wanted = _match(writer, reader)
        node = _Node(Op.RECORD, out)
        for theirs in writer.fields:
            mine = wanted.get(theirs.name)
            if mine is None:
                node.children.append(self._skip(theirs.type))
            else:
                node.children.append(self.read(theirs.type, mine.type, places[mine.name]))
        given = {mine.name for mine in wanted.values()}
        for mine in reader.fields:
            if mine.name not in given:
                node.children.append(self._default(mine, places[mine.name]))
        return node

    def _default(self, mine: AvroField, out: AvroColumn) -> _Node:
        if mine.default is MISSING:
            return _Node(Op.FAIL)
        data = avrovalue.encode(mine.type, mine.default, mine.name)
        return _Node(Op.CONSTANT, children=[self.read(mine.type, mine.type, out)], constant=data)

    def _read_items(self, writer: AvroType, reader: AvroType, out: AvroColumn) -> _Node:
        assert writer.items is not None  # noqa: S101 (the parser saw to it)
        assert reader.items is not None  # noqa: S101
        inner = out.children[0]
        if writer.kind == "array":
            return _Node(Op.ARRAY, out, children=[self.read(writer.items, reader.items, inner)])
        # In the encoding, a map is an array of its entries.
        key, value = inner.children
        children = [_Node(Op.BYTES, key), self.read(writer.items, reader.items, value)]
        return _Node(Op.ARRAY, out, children=[_Node(Op.RECORD, inner, children=children)])

    def _fail(self, writer: AvroType) -> _Node:
        """Build a node for a type that does not match; its child describes the bytes to skip."""
        return _Node(Op.FAIL, children=[self._skip(writer)])

    def _skip(self, writer: AvroType) -> _Node:
        if writer in self._skips:
            return self._skips[writer]
        node = self._skips[writer] = _Node(_READS.get(writer.kind, Op.FIXED), size=writer.size)
        if writer.kind == "record":
            node.op = Op.RECORD
            node.children = [self._skip(theirs.type) for theirs in writer.fields]
        elif writer.kind == "union":
            node.op = Op.UNION
            node.children = [self._skip(branch) for branch in writer.branches]
        elif writer.kind == "enum":
            node.op, node.table = Op.ENUM, list(range(len(writer.symbols)))
        elif writer.items is not None:
            node.op, inner = Op.ARRAY, self._skip(writer.items)
            is_map = writer.kind == "map"
            entry = _Node(Op.RECORD, children=[_Node(Op.BYTES), inner])
            node.children = [entry if is_map else inner]
        return node

    def number_nodes(self, root: _Node) -> list[NodeSpec]:
        """Number the nodes, the root first, and convert them to the kernel's format."""
        numbers, order = {root: 0}, [root]
        for node in order:
            for child in node.children:
                if child not in numbers:
                    numbers[child] = len(order)
                    order.append(child)
        return [
            (
                int(node.op),
                node.out.index if node.out else -1,
                node.size,
                [numbers[child] for child in node.children],
                node.table,
                node.constant,
            )
            for node in order
        ]


def _has_null(reader: AvroType) -> bool:
    return any(branch.kind == "null" for branch in reader.branches)


def _match(writer: AvroType, reader: AvroType) -> dict[str, AvroField]:
    """Map the writer's fields to the reader's: by name, otherwise by alias."""
    by_name = {mine.name: mine for mine in reader.fields}
    names = {theirs.name for theirs in writer.fields}
    fields = {name: by_name[name] for name in names if name in by_name}
    for mine in reader.fields:
        if mine.name not in names:
            alias = next(
                (alias for alias in mine.aliases if alias in names and alias not in fields), None
            )
            if alias is not None:
                fields[alias] = mine
    return fields


def _choose(writer: AvroType, branches: list[AvroType]) -> int | None:
    """Choose the reader's branch for a type: the most similar of those that match."""
    for test in (_has_same_name, _is_called_alike, _is_same_kind, _matches):
        for at, branch in enumerate(branches):
            if test(writer, branch) and _matches(writer, branch):
                return at
    return None


def _has_same_name(writer: AvroType, reader: AvroType) -> bool:
    return writer.kind == reader.kind and writer.name == reader.name


def _is_called_alike(writer: AvroType, reader: AvroType) -> bool:
    names = {reader.name, *reader.aliases}
    return writer.kind == reader.kind and _last(writer.name) in {_last(name) for name in names}


def _is_same_kind(writer: AvroType, reader: AvroType) -> bool:
    return writer.kind == reader.kind


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _matches(writer: AvroType, reader: AvroType) -> bool:
    # Names only decide between the branches of a union: readers can rename their records.
    if writer.kind != reader.kind:
        return reader.kind in _PROMOTIONS.get(writer.kind, ()) and reader.logical != "decimal"
    if writer.logical == "decimal" == reader.logical and (
        (writer.precision, writer.scale) != (reader.precision, reader.scale)
    ):
        return False
    return writer.kind != "fixed" or writer.size == reader.size


def _symbols(writer: AvroType, reader: AvroType) -> list[int]:
    places = {symbol: at for at, symbol in enumerate(reader.symbols)}
    other = places.get(reader.default, -1) if reader.default is not None else -1
    return [places.get(symbol, other) for symbol in writer.symbols]


def _factor(writer: AvroType, reader: AvroType, out: AvroColumn) -> int:
    """Return the factor from a number to the column's unit; a negative factor divides."""
    if "timestamp" not in reader.logical:
        return 1
    logical = writer.logical if "timestamp" in writer.logical else reader.logical
    written = _NANOS[logical.rpartition("-")[2]]
    wanted = 1 if out.type.unit == "ns" else 1_000  # type: ignore[attr-defined]  # a timestamp's
    return written // wanted if written >= wanted else -(wanted // written)
