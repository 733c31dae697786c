"""The contract of the Avro kernel."""

from collections.abc import Sequence
from typing import TypeAlias

from typing_extensions import Buffer

BuilderSpec: TypeAlias = tuple[int, int, Sequence[int]]
"""Kind, width (bytes of a fixed, digits of a decimal), and the numbers of its children. Builder 0
is the root. A list has one child, a struct any number, others none."""

NodeSpec: TypeAlias = tuple[int, int, int, Sequence[int], Sequence[int], bytes]
"""Op, builder (-1: skip), size, children, table, constant. Node 0 is the root. The size is that of
a fixed, the place of a member, or the factor of a whole number."""

Built: TypeAlias = tuple[int, int, bytes | None, bytes | None, bytes | None]
"""Length, nulls, validity (bits), offsets (int32) and data, as Arrow lays them out."""

class Program:
    """Nodes that read, and builders that they fill."""

    def __init__(self, builders: Sequence[BuilderSpec], nodes: Sequence[NodeSpec]) -> None: ...
    def run(
        self, data: Buffer, offsets: Buffer, first: int, count: int, /
    ) -> tuple[list[Built], list[tuple[int, int]]]:
        """Read rows; return what was built, and the rows that failed with the fault's number.

        A row that failed is null in the root.
        """
