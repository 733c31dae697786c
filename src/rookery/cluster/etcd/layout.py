"""The layout of a log in etcd: its keys and their values.

    <name>/head                         the last entry's number, in decimal digits
    <name>/entry/00000000000000000042   format, CRC-32C, then the entry itself
    <name>/writer/0123456789abcdef      a handle's last append: its turn, and the number it got

There is no key for the floor: it is the number before the first existing entry, or the head if
there is none. So trimming only deletes, which etcd allows even when it is full.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c

from rookery.errors import Corrupt

WRITER_BYTES: Final = 8
_FORMAT: Final = b"\x01"
_CRC_BYTES: Final = 4
_HEADER_BYTES: Final = len(_FORMAT) + _CRC_BYTES
_DIGITS: Final = 20


class EtcdKeys:
    """The keys of one log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.head: Final = f"{name}/head".encode()
        self._entries: Final = f"{name}/entry/".encode()
        # Only digits follow the prefix, and ':' sorts after all digits.
        self.end: Final = self._entries + b":"
        self.writers: Final = f"{name}/writer/".encode()
        self.writers_end: Final = f"{name}/writer0".encode()

    def entry(self, number: int) -> bytes:
        """Return the key of an entry; keys are in the order of their numbers."""
        return self._entries + b"%020d" % number

    def writer(self, token: bytes) -> bytes:
        """Return the key of an appending handle."""
        return self.writers + token.hex().encode()

    def number(self, key: bytes) -> int:
        """Return the entry number of a key."""
        digits = key.removeprefix(self._entries)
        if len(digits) != _DIGITS or not digits.isdigit():
            raise Corrupt(f"key {key!r} in etcd is not an entry of the cluster log: remove it")
        return int(digits)

    def read_head(self, value: bytes) -> int:
        """Return the number in the head's value."""
        if not value.isdigit():
            raise Corrupt(f"key {self.head!r} in etcd holds {value[:40]!r} and not a number")
        return int(value)


def write_head(number: int) -> bytes:
    """Return the head's value."""
    return b"%d" % number


def write_value(data: bytes) -> bytes:
    """Return an entry's value."""
    return b"".join((_FORMAT, crc32c(data).to_bytes(_CRC_BYTES, "big"), data))


def read_value(key: bytes, value: bytes) -> bytes:
    """Return the entry in a value.

    Raises:
        Corrupt: the value is damaged, or a newer version wrote it.
    """
    if value[:1] != _FORMAT or len(value) < _HEADER_BYTES:
        raise Corrupt(f"key {key!r} in etcd has a form that this version cannot read")
    data = value[_HEADER_BYTES:]
    if crc32c(data) != int.from_bytes(value[len(_FORMAT) : _HEADER_BYTES], "big"):
        raise Corrupt(f"key {key!r} in etcd has changed since it was written: its checksum differs")
    return data


class LastAppend(NamedTuple):
    """A handle's last append: its sequence among the handle's appends, and its first number."""

    turn: int
    number: int

    def write(self) -> bytes:
        """Encode it as a value."""
        return b"%d %d" % self


def read_last(key: bytes, value: bytes) -> LastAppend:
    """Decode a writer's value."""
    turn, _, number = value.partition(b" ")
    if not turn.isdigit() or not number.isdigit():
        raise Corrupt(f"key {key!r} in etcd holds {value[:40]!r} and not a writer's last append")
    return LastAppend(int(turn), int(number))


def check_head(name: str, head: int, known: int) -> None:
    """Reject a head below one that was seen before.

    Raises:
        Corrupt: acknowledged entries are lost, and their numbers would be reused.
    """
    if head < known:
        raise Corrupt(
            f"the cluster log {name!r} in etcd ends at {head}, but was seen to end at {known}: was "
            "an older backup restored, or its head changed by hand? Stop all brokers"
        )
