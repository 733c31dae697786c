"""Computes the internal-topic partition of a group or a transactional id, as Kafka does."""

from __future__ import annotations


def partition_of(key: str, count: int) -> int:
    """Return the partition of a key, by Java's string hash."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    # Kafka's abs of the lowest integer is 0.
    return (0 if signed == -(1 << 31) else abs(signed)) % count
