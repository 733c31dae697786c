"""Variable-length integers, as in Kafka records, Avro and Protobuf."""

from __future__ import annotations


def zigzag(value: int) -> bytes:
    """Encode a signed number of up to 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
