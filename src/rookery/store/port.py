"""The port of the object store: the guarantees of every backend.

Objects are immutable. A key is created once and never refers to other bytes, so bytes read
from an object are valid as long as it exists. The exceptions are a few small objects that their
users `replace`, and that are read only by `read_version`.
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
    """The properties of a store that callers may use, independent of the backend."""

    has_preconditions: bool
    """Whether conditional writes are guaranteed; if not, `store.probe` must test the server."""
    path: Path | None = None
    """The folder on this host that holds the objects; None if they are elsewhere."""

    @property
    def is_on_this_host(self) -> bool:
        """Whether the store is a folder in this host's file system."""
        return self.path is not None


class StoredObject(NamedTuple):
    """An object in a listing."""

    key: str
    size: int


class NotFound(Error):  # noqa: N818 (the name says what happened; the base says it is an error)
    """There is no object with that key: barrier and plan again. It is not an empty object."""

    def __init__(self, key: str, full_key: str = "") -> None:
        """Name the object.

        Args:
            key: the key that the caller used.
            full_key: its key in the store itself, if that differs.
        """
        super().__init__(f"there is no object {full_key or key!r} in the store")
        self.key = key


class ReadableStore(Protocol):
    """The part of a store that a reader needs.

    Keys are paths of ASCII letters, digits and `-_.=` in parts joined by `/`, so that every topic
    name is a valid part. No part is empty, `.` or `..`. No object's key may be a path prefix of
    another's (`a` and `a/b`). Every method raises ValueError for any other key, and `Unavailable`
    when the store cannot be reached.
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

        The prefix is text, not a folder: "a/b" finds "a/bc". Objects that are created or deleted
        meanwhile may be included or not.
        """

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Return a whole object with the name of its version, None if there is no such object.

        Some stores derive the version from the bytes. A caller that must distinguish two writes
        must not write the same bytes twice.
        """


class Store(ReadableStore, Protocol):
    """A store for objects that many processes share.

    Its methods check keys and raise errors as those of a `ReadableStore` do.
    """

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one after the other, as a new object.

        When it returns, the object is durable, and every reader sees all of it. A partial object is
        never visible.

        Raises:
            Conflict: an object with that key exists; it is unchanged.
            Unavailable: it is not known whether the object was created.
        """

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace an object if it still has that version, and return the name of the new version.

        Raises:
            Conflict: it has another version now, or was deleted; it is unchanged.
            Unavailable: it is not known whether the object was replaced.
        """

    async def delete(self, key: str) -> None:
        """Delete an object; a missing object is not an error."""

    async def close(self) -> None:
        """Close the handle."""


_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.=/")


def check_key(key: str) -> None:
    """Reject a key that a backend does not support, or that would leave the store's folder."""
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
    """Reject a range outside of an object."""
    if start < 0 or (size is not None and size < 0) or (total is not None and start > total):
        raise ValueError(f"object {key!r}: cannot read {size} bytes from {start}, it has {total}")
