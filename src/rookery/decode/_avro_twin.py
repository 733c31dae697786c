"""The Avro kernel in Python: the same buffers and the same faults as `_avro.pyx`."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from rookery.decode._avro import BuilderSpec, Built, NodeSpec

_MAX_DEPTH: Final = 64
_SPARE_ITEMS: Final = 256
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1

# Faults, as numbered in `avrokernel.FAULTS`.
_CUT_OFF, _BAD_VARINT, _BAD_LENGTH, _BAD_BRANCH, _BAD_SYMBOL, _BAD_BOOLEAN = 1, 2, 3, 4, 5, 6
_BAD_TEXT, _OUT_OF_RANGE, _TOO_MANY, _TOO_DEEP, _TOO_BIG, _UNRESOLVED = 7, 8, 9, 10, 11, 12
_TRAILING: Final = 13

# Kinds of builders, as in `avrokernel.Kind`.
_NULL, _BOOLEAN, _TEXT, _FIXED, _DECIMAL, _LIST, _STRUCT = 0, 1, 7, 8, 9, 10, 11
_FORMATS: Final = {2: "<i", 3: "<q", 4: "<f", 5: "<d"}
_VARIABLE: Final = frozenset({6, _TEXT, _LIST})


class _Fault(Exception):  # noqa: N818 (never leaves this module)
    def __init__(self, number: int) -> None:
        self.number = number


class _Builder:
    __slots__ = ("children", "data", "kind", "offsets", "valid", "width")

    def __init__(self, kind: int, width: int) -> None:
        self.kind = kind
        if kind in _FORMATS:
            self.width = struct.calcsize(_FORMATS[kind])
        else:
            self.width = {_BOOLEAN: 1, _DECIMAL: 16, _FIXED: width}.get(kind, 0)
        self.children: list[_Builder] = []
        self.clear()

    def clear(self) -> None:
        self.valid = bytearray()
        self.data = bytearray()
        self.offsets = array("i", [0])

    def put(self, data: bytes) -> None:
        """Append a value of fixed width."""
        self.data += data
        self.valid.append(1)

    def put_variable(self, data: bytes) -> None:
        if len(data) > _INT32_MAX - len(self.data):
            raise _Fault(_TOO_BIG)
        self.data += data
        self.offsets.append(len(self.data))
        self.valid.append(1)

    def put_list(self) -> None:
        length = len(self.children[0].valid)
        if length > _INT32_MAX:
            raise _Fault(_TOO_BIG)
        self.offsets.append(length)
        self.valid.append(1)

    def put_null(self) -> None:
        if self.kind in _VARIABLE:
            self.offsets.append(self.offsets[-1])
        elif self.kind == _STRUCT:
            for child in self.children:
                child.put_null()
        else:
            self.data += bytes(self.width)
        self.valid.append(0)

    def cut(self, length: int) -> None:
        """Take back what was appended beyond a length."""
        del self.valid[length:]
        if self.kind in _VARIABLE:
            del self.offsets[length + 1 :]
            if self.kind == _LIST:
                self.children[0].cut(self.offsets[-1])
            else:
                del self.data[self.offsets[-1] :]
        elif self.kind == _STRUCT:
            for child in self.children:
                child.cut(length)
        else:
            del self.data[length * self.width :]

    def built(self) -> Built:
        length = len(self.valid)
        nulls = self.valid.count(0)
        validity = _packed(self.valid) if nulls else None
        if self.kind in _VARIABLE:
            data = None if self.kind == _LIST else bytes(self.data)
            return length, nulls, validity, self.offsets.tobytes(), data
        if self.kind == _BOOLEAN:
            return length, nulls, validity, None, _packed(self.data)
        return length, nulls, validity, None, bytes(self.data) if self.width else None


def _packed(flags: bytearray) -> bytes:
    found = bytearray((len(flags) + 7) // 8)
    for at, flag in enumerate(flags):
        found[at >> 3] |= flag << (at & 7)
    return bytes(found)


class _Row:
    """The bytes of a row, and how far they are read."""

    __slots__ = ("at", "budget", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.budget = len(data) + _SPARE_ITEMS

    def take(self, size: int, fault: int = _CUT_OFF) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise _Fault(fault)
        self.at += size
        return self.data[self.at - size : self.at]

    def take_long(self) -> int:
        whole = shift = 0
        while self.at < len(self.data):
            byte = self.data[self.at]
            self.at += 1
            whole |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift == 63 and byte > 1:
                    raise _Fault(_BAD_VARINT)
                return (whole >> 1) ^ -(whole & 1)
            shift += 7
            if shift > 63:
                raise _Fault(_BAD_VARINT)
        raise _Fault(_CUT_OFF)

    def take_int(self) -> int:
        value = self.take_long()
        if not -_INT32_MAX - 1 <= value <= _INT32_MAX:
            raise _Fault(_BAD_VARINT)
        return value


class Program:
    """Nodes that read, and builders that they fill."""

    def __init__(self, builders: Sequence[BuilderSpec], nodes: Sequence[NodeSpec]) -> None:
        """Take what `avroplan` planned."""
        self._builders = [_Builder(kind, width) for kind, width, _ in builders]
        self._digits = [width for _, width, _ in builders]
        for builder, (_, _, children) in zip(self._builders, builders, strict=True):
            builder.children = [self._builders[at] for at in children]
        self._nodes = nodes

    def run(
        self, data: Buffer, offsets: Buffer, first: int, count: int, /
    ) -> tuple[list[Built], list[tuple[int, int]]]:
        """Read rows; return what was built, and the rows that failed with the fault's number."""
        view, ends = memoryview(data).cast("B"), memoryview(offsets).cast("B").cast("i")
        if first < 0 or count < 0 or first + count + 1 > len(ends):
            raise ValueError("rows outside of the offsets")
        faults: list[tuple[int, int]] = []
        root = self._builders[0]
        try:
            for at in range(count):
                begin, end = ends[first + at], ends[first + at + 1]
                if not 0 <= begin <= end <= len(view):
                    raise ValueError("offsets outside of the data")
                fault = self._read_row(_Row(bytes(view[begin:end])))
                if fault:
                    root.cut(at)
                    root.put_null()
                    faults.append((at, fault))
            return [builder.built() for builder in self._builders], faults
        finally:
            for builder in self._builders:
                builder.clear()

    def _read_row(self, row: _Row) -> int:
        try:
            self._read(row, 0, 0)
        except _Fault as fault:
            return fault.number
        return 0 if row.at == len(row.data) else _TRAILING

    def _read(self, row: _Row, at: int, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _Fault(_TOO_DEEP)
        node = self._nodes[at]
        _OPS[node[0]](self, row, node, depth)

    def _out(self, node: NodeSpec) -> _Builder | None:
        return None if node[1] < 0 else self._builders[node[1]]

    def _null(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002 (as all ops)
        if out := self._out(node):
            out.put_null()

    def _boolean(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        byte = row.take(1)
        if byte[0] > 1:
            raise _Fault(_BAD_BOOLEAN)
        if out := self._out(node):
            out.put(byte)

    def _int(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        self._put_whole(node, row.take_int(), node[2])

    def _long(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        self._put_whole(node, row.take_long(), node[2])

    def _put_whole(self, node: NodeSpec, value: int, factor: int) -> None:
        if out := self._out(node):
            if factor > 1:
                value *= factor
                if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
                    raise _Fault(_OUT_OF_RANGE)
            elif factor < 0:
                value //= -factor
            out.put(struct.pack(_FORMATS[out.kind], value))

    def _float(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        self._put_real(node, struct.unpack("<f", row.take(4))[0])

    def _double(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        self._put_real(node, struct.unpack("<d", row.take(8))[0])

    def _put_real(self, node: NodeSpec, value: float) -> None:
        if out := self._out(node):
            out.put(struct.pack(_FORMATS[out.kind], value))

    def _bytes(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        self._put_bytes(node, row.take(row.take_long(), _BAD_LENGTH))

    def _fixed(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        self._put_bytes(node, row.take(node[2]))

    def _put_bytes(self, node: NodeSpec, data: bytes) -> None:
        out = self._out(node)
        if out is None:
            return
        if out.kind == _DECIMAL:
            value = int.from_bytes(data, "big", signed=True)
            if abs(value) >= 10 ** self._digits[node[1]]:
                raise _Fault(_OUT_OF_RANGE)
            out.put(value.to_bytes(16, "little", signed=True))
        elif out.kind == _FIXED:
            out.put(data)
        else:
            if out.kind == _TEXT:
                _check_text(data)
            out.put_variable(data)

    def _enum(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        symbol, table = row.take_int(), node[4]
        if not 0 <= symbol < len(table) or table[symbol] < 0:
            raise _Fault(_BAD_SYMBOL)
        self._put_whole(node, table[symbol], 1)

    def _array(self, row: _Row, node: NodeSpec, depth: int) -> None:
        while count := row.take_long():
            if count < 0:
                size = row.take_long()
                if count < -_INT64_MAX or not 0 <= size <= len(row.data) - row.at:
                    raise _Fault(_BAD_LENGTH)
                count = -count
            if count > row.budget:
                raise _Fault(_TOO_MANY)
            row.budget -= count
            for _ in range(count):
                self._read(row, node[3][0], depth + 1)
        if out := self._out(node):
            out.put_list()

    def _record(self, row: _Row, node: NodeSpec, depth: int) -> None:
        for child in node[3]:
            self._read(row, child, depth + 1)
        if out := self._out(node):
            out.valid.append(1)

    def _union(self, row: _Row, node: NodeSpec, depth: int) -> None:
        branch = row.take_long()
        if not 0 <= branch < len(node[3]):
            raise _Fault(_BAD_BRANCH)
        self._read(row, node[3][branch], depth + 1)

    def _member(self, row: _Row, node: NodeSpec, depth: int) -> None:
        self._read(row, node[3][0], depth + 1)
        out = self._builders[node[1]]
        for at, child in enumerate(out.children):
            if at != node[2]:
                child.put_null()
        out.valid.append(1)

    def _constant(self, row: _Row, node: NodeSpec, depth: int) -> None:
        before = row.data, row.at
        row.data, row.at = node[5], 0
        self._read(row, node[3][0], depth + 1)
        row.data, row.at = before

    def _fail(self, row: _Row, node: NodeSpec, depth: int) -> None:  # noqa: ARG002
        raise _Fault(_UNRESOLVED)


def _check_text(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise _Fault(_BAD_TEXT) from None


_Op = Callable[[Program, _Row, "NodeSpec", int], None]

# In the order of `avrokernel.Op`.
_OPS: Final[tuple[_Op, ...]] = (
    Program._null,
    Program._boolean,
    Program._int,
    Program._long,
    Program._float,
    Program._double,
    Program._bytes,
    Program._fixed,
    Program._enum,
    Program._array,
    Program._record,
    Program._union,
    Program._member,
    Program._constant,
    Program._fail,
)
