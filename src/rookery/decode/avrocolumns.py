"""Runs Avro plans: with the compiled kernel if it was built, otherwise with fastavro."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol

import pyarrow as pa

from rookery import native
from rookery.decode import avrofallback, avrokernel
from rookery.decode.avroplan import AvroColumn, AvroPlan, plan
from rookery.decode.avroschema import AvroType
from rookery.decode.port import Array, DecodeResult, bad_row
from rookery.decode.rows import nulls

_module: ModuleType = native.load("rookery.decode._avro", "rookery.decode.avrofallback")


class Translation(Protocol):
    """Converts values of one writer's schema to a column of one reader's schema."""

    def run(self, column: Array) -> DecodeResult:
        """Decode a binary column without nulls."""


def open_translation(writer: AvroType, reader: AvroType) -> Translation:
    """Return the translation from a writer's schema to a reader's.

    Raises:
        ConfigError: the reader's schema is unusable, or there is neither a kernel nor fastavro.
    """
    made = plan(writer, reader)
    if _module is avrofallback:
        return avrofallback.FastavroTranslation(made)
    return KernelTranslation(made, _module.Program)


class KernelTranslation:
    """Runs a plan with the compiled kernel."""

    def __init__(self, plan: AvroPlan, kernel: type[Any]) -> None:
        builders = [
            (int(column.kind), column.width, [child.index for child in column.children])
            for column in plan.columns
        ]
        self._root = plan.root
        self._program = kernel(builders, plan.nodes)

    def run(self, column: Array) -> DecodeResult:
        """Decode a binary column without nulls."""
        _, offsets, data = column.buffers()
        if not len(column) or offsets is None:
            return DecodeResult(nulls(0, self._root.type))
        built, faults = self._program.run(
            memoryview(data or b""), memoryview(offsets), column.offset, len(column)
        )
        bad = tuple(bad_row(row, f"not Avro: {avrokernel.FAULTS[fault]}") for row, fault in faults)
        return DecodeResult(_array(self._root, built), bad)


def _array(column: AvroColumn, built: Sequence[tuple[Any, ...]]) -> Array:
    length, nulls, validity, offsets, data = built[column.index]
    children = [_array(child, built) for child in column.children]
    if pa.types.is_null(column.type):
        return pa.nulls(length)
    head = pa.py_buffer(validity) if validity is not None else None
    if column.symbols:
        codes = pa.Array.from_buffers(pa.int32(), length, [head, pa.py_buffer(data)], nulls)
        symbols = pa.array(column.symbols, pa.string())
        return pa.DictionaryArray.from_arrays(codes, symbols).cast(pa.string())
    buffers = [head, *(pa.py_buffer(buffer) for buffer in (offsets, data) if buffer is not None)]
    return pa.Array.from_buffers(column.type, length, buffers, nulls, 0, children or None)
