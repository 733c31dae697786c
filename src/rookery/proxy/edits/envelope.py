"""Encrypted values: AES-256-GCM with a data key that the envelope names.

    magic (4)    length of the key's name (1), name    length of the wrapped key (2), wrapped key
    nonce (12)   ciphertext, then the tag (16)

The data key is encrypted, or *wrapped*, by a key that never appears in records. All values of one
process have the same data key, and nonces are counted, so that none repeats. The tag covers
what precedes the nonce, and the record's key: a value cannot be moved to another key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, count
from struct import Struct
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rookery.errors import Corrupt
from rookery.records.recordcodec import Record
from rookery.records.recordedit import RecordFields

MAGIC: Final = b"\x00RE\x01"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_AT_LEAST: Final = len(MAGIC) + 1 + 2 + _NONCE_BYTES + _TAG_BYTES
KEY_BYTES: Final = 32


_CALL_BYTES: Final = 8
_NO_KEY: Final = b"\x00"
_WITH_KEY: Final = b"\x01"
_pack_number: Final = Struct(">I").pack
_FIRST_NUMBERS: Final = tuple(map(_pack_number, range(16_384)))


class DataKey(NamedTuple):
    """A key for values, and its form in envelopes."""

    name: str
    """The name of the key that has wrapped it."""
    wrapped: bytes
    plain: bytes

    @property
    def head(self) -> bytes:
        """The beginning of an envelope, before the nonce."""
        name = self.name.encode()
        return b"%b%c%b%b%b" % (
            MAGIC,
            len(name),
            name,
            len(self.wrapped).to_bytes(2, "big"),
            self.wrapped,
        )


class EnvelopeHead(NamedTuple):
    """Which key opens an envelope."""

    name: str
    wrapped: bytes
    size: int
    """The bytes before the nonce."""


class ValueSealer:
    """Encrypts values with one data key."""

    def __init__(self, key: DataKey) -> None:
        self.key = key
        self._head = key.head
        self._encrypt = AESGCM(key.plain).encrypt
        # A nonce is the number of a call and that of a value in it. `next` of a count is atomic,
        # so that threads get different numbers.
        self._calls = count()

    def seal(self, value: bytes, record_key: bytes | None) -> bytes:
        """Return the envelope of a value."""
        [row] = self.seal_rows([Record(record_key, value)])
        assert row[1] is not None  # noqa: S101 (only null stays null)
        return row[1]

    def seal_rows(self, rows: Iterable[Record]) -> list[RecordFields]:
        """Return records with envelopes instead of values; null stays null."""
        # Each step counts: a record of 100 bytes costs about a microsecond in all.
        encrypt, first = self._encrypt, next(self._calls).to_bytes(_CALL_BYTES, "big")
        start, no_key, with_key = self._head + first, self._head + _NO_KEY, self._head + _WITH_KEY
        sealed: list[RecordFields] = []
        add, numbers = sealed.append, _Numbers()
        for row in rows:
            key, value, headers, timestamp, offset = row
            if value is None:
                add(row)
                continue
            number = numbers.next()
            covered = no_key if key is None else with_key + key
            body = encrypt(first + number, value, covered)
            add((key, start + number + body, headers, timestamp, offset))
        return sealed


class _Numbers:
    """The second half of nonces: 0, 1, 2, …, each in four bytes."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = chain(_FIRST_NUMBERS, map(_pack_number, count(len(_FIRST_NUMBERS)))).__next__


class ValueOpener:
    """Decrypts values with one data key."""

    def __init__(self, plain: bytes) -> None:
        self.decrypt = AESGCM(plain).decrypt


def open_rows(
    rows: Iterable[Record], find: Callable[[EnvelopeHead, bytes], ValueOpener]
) -> tuple[list[RecordFields], bool]:
    """Return records with values instead of envelopes, and whether there was any envelope.

    Args:
        rows: the records.
        find: returns what opens the envelopes that begin with some bytes.

    Raises:
        Corrupt: an envelope was changed, or belongs to another record.
    """
    opened: list[RecordFields] = []
    add, head, is_changed = opened.append, MAGIC, False
    decrypt = AESGCM(bytes(KEY_BYTES)).decrypt
    start = end = 0
    no_key = with_key = b""
    for row in rows:
        key, value, headers, timestamp, offset = row
        if value is None or value[: len(MAGIC)] != MAGIC:
            add(row)
            continue
        if not start or not value.startswith(head):
            # Most values of a batch have the same data key.
            read = read_head(value)
            head = value[: read.size]
            decrypt = find(read, head).decrypt
            start, end = read.size, read.size + _NONCE_BYTES
            no_key, with_key = head + _NO_KEY, head + _WITH_KEY
        covered = no_key if key is None else with_key + key
        try:
            plain = decrypt(value[start:end], value[end:], covered)
        except (InvalidTag, ValueError):
            raise Corrupt("an encrypted value was changed, or moved to another key") from None
        add((key, plain, headers, timestamp, offset))
        is_changed = True
    return opened, is_changed


def is_sealed(value: bytes | None) -> bool:
    """Return whether a value begins as an envelope does."""
    return value is not None and value.startswith(MAGIC)


def read_head(envelope: bytes) -> EnvelopeHead:
    """Return which key opens an envelope.

    Raises:
        Corrupt: it is too short.
    """
    try:
        start = len(MAGIC) + 1
        name_end = start + envelope[start - 1]
        key_at = name_end + 2
        size = key_at + int.from_bytes(envelope[name_end:key_at], "big")
        name = envelope[start:name_end].decode()
    except (IndexError, UnicodeDecodeError):
        raise _too_short() from None
    if len(envelope) < max(_AT_LEAST, size + _NONCE_BYTES + _TAG_BYTES):
        raise _too_short()
    return EnvelopeHead(name, envelope[key_at:size], size)


def _too_short() -> Corrupt:
    return Corrupt("an encrypted value is incomplete")
