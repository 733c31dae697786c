"""The contract of the gathering kernel, kept by `_gather.pyx` and `_gather_twin.py` alike.

Rows are those of `rookery.consumer.order.table`: eight int64 each.
"""

from collections.abc import Sequence

from rookery.records.kernel import Buffer

def locate(data: Buffer, begin: int, until: int, partition: int, table: Buffer, /) -> int:
    """Note where the records of batches lie that are not compressed; return how many.

    It returns -1 for whatever is not plain: compressed, malformed or of another format. What it
    is then is for the decoder of `rookery.records.columns` to say.

    Args:
        data: whole batches; it must stay where it is while the addresses are used.
        begin: the first offset wanted.
        until: the offset before which records are wanted.
        partition: the number that rows shall bear.
        table: with room for every record; a row's order is left to be said.

    Raises:
        ValueError: the table does not consist of whole rows.
    """

def unpack(lines: Buffer, columns: Sequence[Buffer], /) -> None:
    """Bring the numbers of rows that lie anywhere into columns.

    Args:
        lines: the rows' addresses, as int64; whoever owns the memory must live meanwhile.
        columns: eight, each with exactly the room: int32 for partitions and sizes, else int64.

    Raises:
        ValueError: there are others, or they have not the room.
    """

def gather(addresses: Buffer, sizes: Buffer, out: Buffer, /) -> None:
    """Copy bytes that lie anywhere one behind the other.

    Args:
        addresses: where each piece lies, as int64; whoever owns the memory must live meanwhile.
        sizes: how long each is, as int32; below zero means that there is none.
        out: where to; it must have exactly the room.

    Raises:
        ValueError: there are fewer addresses than sizes, or `out` has another size than needed.
    """
