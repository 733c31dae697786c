"""Strings at arbitrary addresses, copied by the compiled kernel and by its twin."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.consumer import _gather, _gather_twin
from rookery.consumer.gather import binary, put
from rookery.consumer.order.table import (
    KEY,
    OFFSET,
    PARTITION,
    TIME,
    VALUE,
    Table,
    empty,
    lines,
    strings,
)
from rookery.testing.kafkalogs import NOON, pack_rows, rows

VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30)


@settings(deadline=None)  # the first array imports a lot
@given(first=VALUES, second=VALUES, data=st.data())
def test_gathered_rows_equal_their_sources(
    first: list[bytes | None], second: list[bytes | None], data: st.DataObject
) -> None:
    columns = [pa.array(values, pa.binary_view()) for values in (first, second)]
    tables = [empty(len(column)) for column in columns]
    for table, column in zip(tables, columns, strict=True):
        put(table, VALUE, column)
    count = len(first) + len(second)
    rows = data.draw(st.lists(st.integers(0, count - 1), max_size=40)) if count else []

    taken = binary(strings(np.concatenate(tables)[np.array(rows, np.int64)], VALUE))

    every = first + second
    assert taken.to_pylist() == [every[row] for row in rows]
    taken.validate(full=True)


@pytest.mark.parametrize("kernel", [_gather, _gather_twin])
def test_both_kernels_copy_and_refuse_alike(kernel: ModuleType) -> None:
    text = b"one two three"
    address = pa.py_buffer(text).address
    addresses = np.array([address + 8, 0, address, address], np.int64)
    sizes = np.array([5, -1, 3, 0], np.int32)
    out = bytearray(8)

    kernel.gather(addresses.data, sizes.data, out)

    assert out == b"threeone"
    with pytest.raises(ValueError, match="8 bytes do not fit a buffer of 7"):
        kernel.gather(addresses.data, sizes.data, bytearray(7))
    with pytest.raises(ValueError, match="1 addresses for 4 sizes"):
        kernel.gather(addresses[:1].data, sizes.data, out)


@pytest.mark.parametrize("kernel", [_gather, _gather_twin])
def test_both_kernels_arrange_rows_into_columns(kernel: ModuleType) -> None:
    table = np.arange(24, dtype=np.int64).reshape(3, 8)
    table[1, KEY + 1] = -1
    kinds = "qqqiqiqi"
    columns = [np.empty(2, kind) for kind in kinds]

    kernel.unpack(lines(table)[[2, 1]].data, [column.data for column in columns])

    assert [column.tolist() for column in columns] == table[[2, 1]].T.tolist()
    with pytest.raises(ValueError, match="7 columns, not 8"):
        kernel.unpack(lines(table).data, [column.data for column in columns[:7]])
    wrong = [np.empty(2 if number == 3 else 3, kind) for number, kind in enumerate(kinds)]
    with pytest.raises(ValueError, match="column 3 has not the room for 3 rows"):
        kernel.unpack(lines(table).data, [column.data for column in wrong])


def test_both_kernels_locate_records_as_the_decoder_does() -> None:
    rows_ = rows([NOON, -1, NOON + 2, NOON + 1], b"value %d")
    data = b"".join(bytes(pack_rows(rows_.slice(start, 2))) for start in (0, 2))
    second = len(pack_rows(rows_.slice(0, 2)))
    data = data[:second] + (2).to_bytes(8, "big") + data[second + 8 :]

    for kernel in (_gather, _gather_twin):
        table = np.full((4, 8), -9, np.int64)
        assert kernel.locate(data, 1, 4, 7, table.data) == 3
        located = table[:3]
        assert located[:, OFFSET].tolist() == [1, 2, 3]
        assert located[:, TIME].tolist() == [-(1 << 62), NOON + 2, NOON + 1]
        assert located[:, PARTITION].tolist() == [7, 7, 7]
        assert binary(strings(located, VALUE)).to_pylist() == [b"value 1", b"value 2", b"value 3"]
        assert table[3].tolist() == [-9] * 8
        assert kernel.locate(data, 1, 4, 7, located[:2].data) == -1
        with pytest.raises(ValueError, match="72 bytes are not whole rows"):
            kernel.locate(data, 1, 4, 7, bytearray(72))


@settings(deadline=None)  # the first array imports a lot
@given(cuts=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), max_size=3))
def test_both_kernels_agree_on_damaged_batches(cuts: list[tuple[int, int]]) -> None:
    data = bytearray(pack_rows(rows([NOON, NOON + 1, NOON + 2], b"value %d")))
    for at, byte in cuts:
        data[at % len(data)] = byte
    outcomes: list[tuple[int, Table]] = []
    for kernel in (_gather, _gather_twin):
        table = np.zeros((3, 8), np.int64)
        count = kernel.locate(data, 0, 1 << 62, 0, table.data)
        outcomes.append((count, table[: max(count, 0)]))
    assert outcomes[0][0] == outcomes[1][0]
    assert outcomes[0][1].tolist() == outcomes[1][1].tolist()
