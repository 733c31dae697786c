"""The contract of the sieve, kept by `_sieve.pyx` and `_sieve_twin.py` alike."""

from typing import TypeAlias

from rookery.records._kernel import RawHeader

_Buffer: TypeAlias = bytes | bytearray | memoryview

Sifted: TypeAlias = tuple[int, int, int, bytes | None]
"""Records that stay, tombstones among them, the highest time of those that stay (-1: none), and
their bytes; None if all stay."""

SLOT_BYTES: int
"""What one key takes up, with the room around it."""

class OffsetMap:
    """The last offset of every key, known by a keyed digest of 16 bytes."""

    def __init__(self, max_bytes: int, seed: bytes) -> None: ...
    @property
    def capacity(self) -> int:
        """How many keys have room."""

    def __len__(self) -> int: ...
    def note(self, data: _Buffer, header: RawHeader, /) -> bool:
        """Take the keys of a batch's records in; False, and none taken, if not all have room."""

    def sift(self, data: _Buffer, header: RawHeader, drops_tombstones: bool, /) -> Sifted:
        """Leave out records whose key has a later offset, and tombstones if they may go."""

def rebase(data: _Buffer, count: int, shift: int, /) -> bytes:
    """Write records again with `shift` added to their timestamp deltas."""
