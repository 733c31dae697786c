"""In which partition of its own topics Kafka keeps a group or a transactional id."""

from __future__ import annotations


def partition_of(key: str, count: int) -> int:
    """Return the partition of a key, by the hash that Java gives its text."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    # Kafka's abs of the lowest number is 0.
    return (0 if signed == -(1 << 31) else abs(signed)) % count
