"""Decodes Avro without the compiled kernel: fastavro reads bytes, and the plan places values.

fastavro gets a schema that is built from the plan's nodes. Its values have the same bytes as the
writer's, but without interpretation: strings are bytes, enums are numbers, and a map is an array of
entries. Each branch of a union is a record whose only field identifies the branch.

It is about fifty times slower than the kernel and detects less damage: it does not notice overlong
numbers, negative union branches and wrong block sizes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

import pyarrow as pa

from rookery.decode.avrokernel import FAULTS, AvroKind, Op
from rookery.decode.avroplan import AvroColumn, AvroPlan, NodeSpec
from rookery.decode.port import Array, DecodeResult, bad_row
from rookery.decode.rows import to_list
from rookery.errors import ConfigError

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
_BRANCH: Final = "b"
_PLAIN: Final[dict[int, Any]] = {
    Op.NULL: "null",
    Op.INT: "int",
    Op.LONG: "long",
    Op.FLOAT: "float",
    Op.DOUBLE: "double",
    Op.BYTES: "bytes",
    Op.ENUM: "int",
}
# Numbers of `FAULTS`.
_CUT_OFF, _BAD_VARINT, _BAD_BRANCH, _BAD_SYMBOL, _BAD_BOOLEAN = 1, 2, 4, 5, 6
_BAD_TEXT, _OUT_OF_RANGE, _UNRESOLVED, _TRAILING = 7, 8, 12, 13

_Place: TypeAlias = Callable[[Any], Any]


class _Fault(Exception):  # noqa: N818 (never leaves this module)
    def __init__(self, number: int) -> None:
        self.number = number


class FastavroTranslation:
    """Converts values of one writer's schema to a column of one reader's schema."""

    def __init__(self, plan: AvroPlan) -> None:
        """Prepare to run a plan.

        Raises:
            ConfigError: fastavro is not installed, or cannot read such a schema safely.
        """
        self._columns, self._nodes = plan.columns, plan.nodes
        self._schemas = _Schemas(plan.nodes)
        self._read = self._schemas.reader(0)
        # By node, since a skipped node can be the child of many.
        self._placers: dict[int, _Place] = {}
        self._place = self._placer(0)

    def run(self, column: Array) -> DecodeResult:
        """Decode a binary column without nulls."""
        values, bad = [], []
        for row, data in enumerate(to_list(column)):
            try:
                values.append(self._place(self._read(data)))
            except _Fault as fault:
                values.append(None)
                bad.append(bad_row(row, f"not Avro: {FAULTS[fault.number]}"))
        return DecodeResult(pa.array(values, self._columns[0].type), tuple(bad))

    def _target(self, at: int) -> AvroColumn | None:
        """Find the column that a node fills; a union and a default fill that of their children."""
        op, out, _, children, _, _ = self._nodes[at]
        if out >= 0:
            return self._columns[out]
        if op not in {Op.UNION, Op.CONSTANT}:
            return None
        return next(filter(None, map(self._target, children)), None)

    def _placer(self, at: int) -> _Place:
        """Return the function that converts a node's fastavro value to the column's value."""
        if at not in self._placers:
            self._placers[at] = self._new_placer(at)
        return self._placers[at]

    def _new_placer(self, at: int) -> _Place:
        op, _, size, children, table, constant = self._nodes[at]
        column = self._target(at)
        if op == Op.RECORD:
            return self._record_placer(column, children)
        inner = [self._placer(child) for child in children]
        if op == Op.UNION:
            branches = {f"{_BRANCH}{number}": place for number, place in enumerate(inner)}
            return lambda value: next(branches[key](value[key]) for key in value)
        if op == Op.MEMBER:
            return lambda value: {f"member{size}": inner[0](value)}
        if op == Op.CONSTANT:
            default = self._schemas.reader(children[0])(constant)
            return lambda _: inner[0](default)
        if op == Op.ARRAY:
            is_map = column is not None and pa.types.is_map(column.type)
            place = (lambda entry: (*inner[0](entry).values(),)) if is_map else inner[0]
            return lambda value: [place(item) for item in value]
        return partial(_LEAVES[op], size=size, table=table, column=column)

    def _record_placer(self, column: AvroColumn | None, children: list[int]) -> _Place:
        steps: list[tuple[str, str, _Place]] = []
        for child in children:
            number = sum(field != "" for field, _, _ in steps)
            field = f"f{number}" if _is_written(self._nodes[child]) else ""
            target, name = self._target(child), ""
            if column is not None and target is not None:
                name = column.type.field(column.children.index(target)).name
            steps.append((field, name, self._placer(child)))

        def place(value: dict[str, Any]) -> dict[str, Any]:
            placed = {}
            for field, name, step in steps:
                placed[name] = step(value.get(field))
            placed.pop("", None)
            return placed

        return place


class _Schemas:
    """Schemas for fastavro, built from the nodes of a plan."""

    def __init__(self, nodes: list[NodeSpec]) -> None:
        self._nodes = nodes
        self._names: Iterator[str] = iter(())
        self._records: dict[int, str] = {}

    def reader(self, at: int) -> Callable[[bytes], Any]:
        """Return the function that reads the bytes of a node."""
        fastavro = _fastavro()
        self._names, self._records = (f"T{number}" for number in count()), {}
        schema = fastavro.parse_schema(self._of(at, ()))

        def read(data: bytes) -> Any:
            stream = io.BytesIO(data)
            try:
                value = fastavro.schemaless_reader(stream, schema, None)
            except IndexError:
                raise _Fault(_BAD_BRANCH) from None
            except Exception:  # noqa: BLE001 (of damaged bytes it raises whatever comes up)
                raise _Fault(_CUT_OFF) from None
            if stream.tell() != len(data):
                raise _Fault(_TRAILING)
            return value

        return read

    def _of(self, at: int, above: tuple[int, ...]) -> Any:
        op, _, size, children, _, _ = self._nodes[at]
        if at in above:
            raise ConfigError("Avro schema: a type that contains itself" + _NEEDS_KERNEL)
        below = (*above, at)
        if op in _PLAIN:
            return _PLAIN[op]
        if op in {Op.FIXED, Op.BOOLEAN}:
            size = 1 if op == Op.BOOLEAN else size
            return {"type": "fixed", "name": next(self._names), "size": size}
        if op == Op.UNION:
            inner = [self._of(child, below) for child in children]
            return [self._record([(f"{_BRANCH}{i}", kind)]) for i, kind in enumerate(inner)]
        if op == Op.RECORD:
            return self._records.get(at) or self._of_record(at, below)
        if op == Op.ARRAY:
            items = self._of(children[0], below)
            if self._is_empty(children[0]):
                raise ConfigError("Avro schema: an array of items without bytes" + _NEEDS_KERNEL)
            return {"type": "array", "items": items}
        return self._of(children[0], below)

    def _of_record(self, at: int, below: tuple[int, ...]) -> dict[str, Any]:
        written = [child for child in self._nodes[at][3] if _is_written(self._nodes[child])]
        made = self._record([(f"f{i}", self._of(child, below)) for i, child in enumerate(written)])
        self._records[at] = made["name"]
        return made

    def _record(self, fields: list[tuple[str, Any]]) -> dict[str, Any]:
        listed = [{"name": name, "type": kind} for name, kind in fields]
        return {"type": "record", "name": next(self._names), "fields": listed}

    def _is_empty(self, at: int) -> bool:
        """Whether values take no bytes: an array can then claim any number of them."""
        op, _, size, children, _, _ = self._nodes[at]
        if op in {Op.MEMBER, Op.FAIL, Op.RECORD}:
            return all(self._is_empty(child) for child in children)
        return op in {Op.NULL, Op.CONSTANT} or (op == Op.FIXED and not size)


_NEEDS_KERNEL: Final = " needs the compiled module rookery.decode._avro; see `rookery doctor`"


def _fastavro() -> Any:
    try:
        import fastavro  # noqa: PLC0415 (only if there is no kernel)
    except ImportError:
        raise ConfigError(
            "decoder avro: rookery.decode._avro is not compiled, and fastavro, which would stand in"
            " for it, is not installed; install rookery[decode]"
        ) from None
    return fastavro


def _is_written(node: NodeSpec) -> bool:
    """Whether a node has bytes of the writer: a default or a missing field has none."""
    return node[0] != Op.CONSTANT and not (node[0] == Op.FAIL and not node[3])


# ---- values; each takes a node's size and table, and its column, or None if it is skipped


def _same(value: Any, **_: Any) -> Any:
    return value


def _boolean(value: bytes, **_: Any) -> bool:
    if value not in {b"\0", b"\1"}:
        raise _Fault(_BAD_BOOLEAN)
    return value == b"\1"


def _int(value: int, *, size: int, column: AvroColumn | None, **_: Any) -> Any:
    if not -_INT32_MAX - 1 <= value <= _INT32_MAX:
        raise _Fault(_BAD_VARINT)
    return _long(value, size=size, column=column)


def _long(value: int, *, size: int, column: AvroColumn | None, **_: Any) -> Any:
    if column is not None and column.kind in {AvroKind.FLOAT32, AvroKind.FLOAT64}:
        return float(value)
    value = value // -size if size < 0 else value * max(size, 1)
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise _Fault(_OUT_OF_RANGE)
    return value


def _bytes(value: bytes, *, column: AvroColumn | None, **_: Any) -> Any:
    if column is None or column.kind in {AvroKind.BINARY, AvroKind.FIXED}:
        return value
    if column.kind == AvroKind.DECIMAL:
        return _decimal(value, column)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _Fault(_BAD_TEXT) from None


def _decimal(value: bytes, column: AvroColumn) -> Decimal:
    whole = int.from_bytes(value, "big", signed=True)
    if abs(whole) >= 10**column.width:
        raise _Fault(_OUT_OF_RANGE)
    scale = column.type.scale  # type: ignore[attr-defined]  # a decimal's
    return Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -scale))


def _enum(value: int, *, table: list[int], column: AvroColumn | None, **_: Any) -> str | None:
    if not 0 <= value < len(table) or table[value] < 0:
        raise _Fault(_BAD_SYMBOL)
    return column.symbols[table[value]] if column is not None else None


def _fail(_value: Any, **_: Any) -> None:
    raise _Fault(_UNRESOLVED)


_LEAVES: Final[dict[int, Callable[..., Any]]] = {
    Op.NULL: _same,
    Op.BOOLEAN: _boolean,
    Op.INT: _int,
    Op.LONG: _long,
    Op.FLOAT: _same,
    Op.DOUBLE: _same,
    Op.BYTES: _bytes,
    Op.FIXED: _bytes,
    Op.ENUM: _enum,
    Op.FAIL: _fail,
}
