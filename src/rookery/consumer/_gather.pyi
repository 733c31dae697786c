"""The contract of the gathering kernel, kept by `_gather.pyx` and `_gather_twin.py` alike.

Rows are those of `rookery.consumer.order.table`: eight int64 each.
"""

from collections.abc import Sequence

from rookery.records.kernel import Buffer

def locate(data: Buffer, begin: int, until: int, partition: int, table: Buffer, /) -> int:
    """Record the locations of the records in uncompressed batches; return their number.

    It returns -1 for batches that are compressed, malformed or of another format. The decoder of
    `rookery.records.columns` then determines which of these applies.

    Args:
        data: whole batches; the memory must not move while the addresses are used.
        begin: the first requested offset.
        until: the end offset (exclusive).
        partition: the partition number to store in the rows.
        table: with room for every record; the rows' order is not set.

    Raises:
        ValueError: the table does not consist of whole rows.
    """

def unpack(lines: Buffer, columns: Sequence[Buffer], /) -> None:
    """Copy the numbers of rows at arbitrary addresses into columns.

    Args:
        lines: the rows' addresses, as int64; the memory must stay alive during the call.
        columns: eight, of exactly the needed size: int32 for partitions and sizes, else int64.

    Raises:
        ValueError: the number of columns or the size of one is wrong.
    """

def gather(addresses: Buffer, sizes: Buffer, out: Buffer, /) -> None:
    """Copy byte strings at arbitrary addresses into one contiguous buffer.

    Args:
        addresses: the address of each string, as int64; the memory must stay alive.
        sizes: the size of each, as int32; a negative size means that there is none.
        out: the destination; it must have exactly the needed size.

    Raises:
        ValueError: there are fewer addresses than sizes, or `out` has the wrong size.
    """
