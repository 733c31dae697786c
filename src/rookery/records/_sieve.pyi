"""The contract of the sieve, implemented by `_sieve.pyx` and `twins/sievetwin.py`."""

from typing import TypeAlias

from rookery.records._kernel import RawHeader

_Buffer: TypeAlias = bytes | bytearray | memoryview

Sifted: TypeAlias = tuple[int, int, int, bytes | None]
"""The number of records kept, the number of tombstones among them, their highest time (-1: none),
and their bytes; None if all are kept."""

SLOT_BYTES: int
"""The memory of one key, including its share of empty slots."""

class OffsetMap:
    """The last offset of every key, identified by a keyed 16-byte digest."""

    def __init__(self, max_bytes: int, seed: bytes) -> None: ...
    @property
    def capacity(self) -> int:
        """The maximum number of keys."""

    def __len__(self) -> int: ...
    def note(self, data: _Buffer, header: RawHeader, /) -> bool:
        """Add the keys of a batch's records; return False and add none if not all fit."""

    def sift(self, data: _Buffer, header: RawHeader, drops_tombstones: bool, /) -> Sifted:
        """Remove records whose key has a later offset, and tombstones if allowed."""

def rebase(data: _Buffer, count: int, shift: int, /) -> bytes:
    """Rewrite records with `shift` added to their timestamp deltas."""
