"""Shadow groups: the committed offsets of virtual partitions, in groups of their own.

Kafka stores one offset for each group and physical partition. The offset of slot s is committed in
a shadow group, whose id is made of s and the id of the real group. The salt in its id makes Kafka
choose the same coordinator for both.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from string import ascii_letters, digits
from typing import Final

PREFIX: Final = "__rookery-virtual-"
# Java's hash multiplies by 31. The last four make the codes of all characters cover every remainder
# of 31, so that there is a salt for any number of partitions.
_SALT: Final = digits + ascii_letters + "_=>?"
_MAX_SALT_LENGTH: Final = 8


def is_shadow(group_id: str) -> bool:
    """Return whether a group id is that of a shadow group."""
    return group_id.startswith(PREFIX)


@lru_cache(10_000)
def shadow_id(group_id: str, slot: int, partitions: int) -> str:
    """Return the id of a group's shadow for a slot.

    Args:
        group_id: the id of the real group.
        slot: the slot of the virtual partitions.
        partitions: the number of partitions of `__consumer_offsets`.
    """
    wanted = offsets_partition(group_id, partitions)
    unsalted = f"{PREFIX}{slot}-{group_id}-"
    code = _java_hash(unsalted)
    for length in range(1, _MAX_SALT_LENGTH):
        for salt in product(_SALT, repeat=length):
            if _partition(_java_hash("".join(salt), code), partitions) == wanted:
                return unsalted + "".join(salt)
    raise AssertionError("the salts cover all remainders")


def offsets_partition(group_id: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that Kafka keeps a group in."""
    return _partition(_java_hash(group_id), partitions)


def _java_hash(text: str, code: int = 0) -> int:
    """Continue Java's hash code of a text, without its sign."""
    data = text.encode("utf-16-be", errors="surrogatepass")
    for at in range(0, len(data), 2):
        code = (code * 31 + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return code


def _partition(code: int, partitions: int) -> int:
    signed = code - (1 << 32) if code >= 1 << 31 else code
    # The absolute value as Kafka defines it: that of the lowest number is 0.
    absolute = 0 if signed == -(1 << 31) else abs(signed)
    return absolute % partitions
