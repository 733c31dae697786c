"""How a coordinator's records are framed: a number before the key, a version before the value.

The number before a key is the type of the record and determines its value; a key has no
other versions. A record without a value is a tombstone: what the key names is gone.
"""

from __future__ import annotations

from typing import Final

from rookery.errors import ApiError, Corrupt, ProtocolError
from rookery.wire.buffer import Buffer, write_i16
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import Message
from rookery.wire.protocols import versionedbytes

KEY_VERSION: Final = 0


class StateTopic:
    """An internal topic, and the pairs of key and value that it may hold."""

    __slots__ = ("keys", "name", "values")

    def __init__(self, name: str, pairs: list[tuple[type[Message], type[Message]]]) -> None:
        self.name = name
        self.keys: dict[int, type[Message]] = {}
        """Key classes by the number that stands before them."""
        self.values: dict[type[Message], type[Message]] = dict(pairs)
        """The value class that belongs to a key class."""
        for key, _ in pairs:
            if key.KEY is None or key.KEY in self.keys:
                raise TypeError(f"{key.__name__} needs a number of its own in {name}")
            self.keys[key.KEY] = key

    def read_key(self, buffer: Buffer) -> Message | None:
        """Read a record's key; None, if its type is newer than ours: skip the record.

        Raises:
            Corrupt: the bytes are no such key.
        """
        try:
            message = self.keys.get(versionedbytes.read_prefix(buffer))
            if message is None:
                return None
            return decode(message, KEY_VERSION, memoryview(buffer)[versionedbytes.PREFIX_BYTES :])
        except ProtocolError as error:
            raise Corrupt(f"a key in {self.name} cannot be read: {error}") from error

    def read_value(self, key: Message, buffer: Buffer | None) -> tuple[Message, int] | None:
        """Read the value that belongs to a key; return it and its version. A tombstone is None.

        Raises:
            Corrupt: the bytes are no such value, or its version is newer than we know.
        """
        message = self._value_of(key)
        if buffer is None:
            return None
        try:
            return versionedbytes.read_exactly(message, buffer)
        except ProtocolError as error:
            raise Corrupt(f"a value in {self.name} cannot be read: {error}") from error
        except ApiError as error:
            raise Corrupt(f"a value in {self.name} is newer than we know: {error.text}") from error

    def write_key(self, key: Message) -> bytes:
        """Write a record's key, its number first."""
        self._value_of(key)
        out = bytearray()
        write_i16(out, key.KEY or 0)
        out += encode_bytes(key, KEY_VERSION)
        return bytes(out)

    def write_value(self, value: Message, version: int) -> bytes:
        """Write a record's value, its version first."""
        if type(value) not in self.values.values():
            raise TypeError(f"a {type(value).__name__} does not belong in {self.name}")
        return versionedbytes.write(value, version)

    def _value_of(self, key: Message) -> type[Message]:
        message = self.values.get(type(key))
        if message is None:
            raise TypeError(f"a {type(key).__name__} does not belong in {self.name}")
        return message
