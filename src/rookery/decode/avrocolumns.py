"""What the Avro kernel built, as Arrow arrays; and a plan with its kernel, ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rookery.decode import avrokernel
from rookery.decode.avroplan import Column, plan
from rookery.decode.avroschema import AvroType
from rookery.decode.port import Array, Decoded, bad_row
from rookery.decode.rows import nulls


class Translation:
    """Turns values of one writer's schema into a column of one reader's."""

    def __init__(
        self, writer: AvroType, reader: AvroType, kernel: type[Any] = avrokernel.Program
    ) -> None:
        made = plan(writer, reader)
        builders = [
            (int(one.kind), one.width, [child.index for child in one.children])
            for one in made.columns
        ]
        self._root = made.root
        self._program = kernel(builders, made.nodes)

    def run(self, column: Array) -> Decoded:
        """Decode a binary column without nulls."""
        _, offsets, data = column.buffers()
        if not len(column) or offsets is None:
            return Decoded(nulls(0, self._root.type))
        built, faults = self._program.run(
            memoryview(data or b""), memoryview(offsets), column.offset, len(column)
        )
        bad = tuple(bad_row(row, f"not Avro: {avrokernel.FAULTS[fault]}") for row, fault in faults)
        return Decoded(_array(self._root, built), bad)


def _array(column: Column, built: Sequence[tuple[Any, ...]]) -> Array:
    length, nulls, validity, offsets, data = built[column.index]
    children = [_array(child, built) for child in column.children]
    if pa.types.is_null(column.type):
        return pa.nulls(length)
    head = pa.py_buffer(validity) if validity is not None else None
    if column.symbols:
        codes = pa.Array.from_buffers(pa.int32(), length, [head, pa.py_buffer(data)], nulls)
        symbols = pa.array(column.symbols, pa.string())
        return pa.DictionaryArray.from_arrays(codes, symbols).cast(pa.string())
    buffers = [head, *(pa.py_buffer(one) for one in (offsets, data) if one is not None)]
    return pa.Array.from_buffers(column.type, length, buffers, nulls, 0, children or None)
