"""The port of the object store: what every backend promises.

Objects are immutable. A key is created once and never means other bytes (correctness 14), so
whatever was read of an object stays true for as long as it exists. The exceptions are the few
small objects that their users `replace`, and read by `read_version` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rookery.errors import Error

MAX_KEY_BYTES: Final = 1024
# As long as a topic's name may be, and short enough for every file system.
MAX_PART_BYTES: Final = 249

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class StoreTraits:
    """What callers may know of a store, whichever backend it has."""

    has_preconditions: bool
    """Whether conditional writes are certain to work; if not, `store.probe` must try the server."""
    path: Path | None = None
    """The folder of this host that holds the objects; None if they are elsewhere."""

    @property
    def is_on_this_host(self) -> bool:
        """Whether the store is a folder in this host's file system."""
        return self.path is not None


class StoredObject(NamedTuple):
    """An object, as listed."""

    key: str
    size: int


class NotFound(Error):  # noqa: N818 (the name says what happened; the base says it is an error)
    """There is no object of that key: barrier and plan again, it is not an empty one."""

    def __init__(self, key: str, full_key: str = "") -> None:
        """Name the object.

        Args:
            key: as the caller has called it.
            full_key: what it is called in the store itself, if that is another key.
        """
        super().__init__(f"there is no object {full_key or key!r} in the store")
        self.key = key


class Store(Protocol):
    """A place for objects that many processes share.

    Keys are paths of ASCII letters, digits and `-_.=` in parts joined by `/`, so that every name
    of a topic is a part; no part is empty, `.` or `..`, and no object's key may go on below
    another's (`a` and `a/b`). Every method raises ValueError for any other key, and
    `Unavailable` when the store is out of reach.
    """

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one behind the other, as a new object.

        When it returns, the object is durable and everyone sees it whole. No one ever sees a
        part of it.

        Raises:
            Conflict: there is an object of that key already; it is untouched.
            Unavailable: it is not known whether the object was created.
        """

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Return the bytes from `start` on, all or at most `size` of them.

        Raises:
            NotFound: there is no such object.
            ValueError: a number is negative, or `start` is beyond the object's end.
        """

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        """Return the same as `read`, in the memory where it was received: for large ranges."""

    async def size(self, key: str) -> int | None:
        """Return the object's size in bytes, None if there is no such object."""

    async def list(self, prefix: str = "") -> list[StoredObject]:
        """Return all objects whose keys begin with the prefix, in the order of their keys.

        The prefix is text, not a folder: "a/b" finds "a/bc". Objects that are created or
        deleted meanwhile may be in it or not.
        """

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Return an object whole with the name of its version, None if there is no such object.

        Some stores name a version after its bytes: who needs to tell two writes apart must not
        write the same bytes twice.
        """

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace an object, if it still is that version, and return the new one's name.

        Raises:
            Conflict: it is another version now, or gone; it is untouched.
            Unavailable: it is not known whether the object was replaced.
        """

    async def delete(self, key: str) -> None:
        """Delete an object; that it is gone already is no error."""

    async def close(self) -> None:
        """Let the handle go."""


_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.=/")


def check_key(key: str) -> None:
    """Refuse a key that some backend could not take, or that would leave the store's folder."""
    if not key or len(key) > MAX_KEY_BYTES or not _LETTERS.issuperset(key):
        raise ValueError(
            f"object key {key[:80]!r}: 1 to {MAX_KEY_BYTES} of letters, digits and -_.=/ only"
        )
    for part in key.split("/"):
        if part in ("", ".", "..") or len(part) > MAX_PART_BYTES:
            raise ValueError(
                f"object key {key[:80]!r}: a part is empty, a dot, two dots"
                f" or longer than {MAX_PART_BYTES}"
            )


def check_range(key: str, start: int, size: int | None, total: int | None = None) -> None:
    """Refuse a range that lies outside an object."""
    if start < 0 or (size is not None and size < 0) or (total is not None and start > total):
        raise ValueError(f"object {key!r}: cannot read {size} bytes from {start}, it has {total}")
