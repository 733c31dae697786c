"""Synchronous access to files below a table's location, on a disk or in a store.

All access uses the store's port. On every kind of store, a file is created atomically and never
replaces another.
"""

from __future__ import annotations

import asyncio
import re
from builtins import list as List  # noqa: N812 (the class has a method of that name)
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from rookery.store.open import as_url, name_of, open_store, store_traits
from rookery.store.port import Store, StoredObject, check_key

T = TypeVar("T")

_AT_ONCE: Final = 16
_FILE: Final = re.compile(r"^file:")
_S3: Final = re.compile(r"^s3[an]://")


class TableFolder:
    """A location that is pickled as its URL; the store is opened on use."""

    def __init__(self, location: str) -> None:
        self.url = as_url(location)

    def __repr__(self) -> str:
        return f"TableFolder({self.name!r})"

    @property
    def name(self) -> str:
        """The URL without its options, which may contain secrets."""
        return name_of(self.url)

    @property
    def path(self) -> Path | None:
        """The folder on this host; None if the location is remote."""
        return store_traits(self.url).path

    def address(self, path: str) -> str:
        """Return the full URL of a file, for other libraries."""
        return f"{self.name.rstrip('/')}/{path}"

    def path_of(self, address: str) -> str:
        """Return a file's path below the location from its address, in any library's form.

        An address outside the location is returned unchanged.
        """
        home, folder = self.name.rstrip("/"), self.path
        if folder is not None:
            home = str(folder)
            plain = "/" + _FILE.sub("", address).lstrip("/")
        else:
            plain = _S3.sub("s3://", address)
        return plain.removeprefix(f"{home}/") if plain.startswith(f"{home}/") else address

    def is_path(self, path: str) -> bool:
        """Return whether a path is valid in this store; other writers use other names."""
        try:
            check_key(path)
        except ValueError:
            return False
        return True

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Create a file.

        Raises:
            Conflict: the file already exists.
        """
        self._run(lambda store: store.create(path, [memoryview(data).cast("B")]))

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            NotFound: there is no such file.
        """
        return self._run(lambda store: store.read(path))

    def read_all(self, paths: Sequence[str]) -> List[bytes]:
        """Return the bytes of several small files, in the given order."""

        async def ask(store: Store) -> List[bytes]:
            limit = asyncio.Semaphore(_AT_ONCE)

            async def read(path: str) -> bytes:
                async with limit:
                    return await store.read(path)

            return await asyncio.gather(*map(read, paths))

        return self._run(ask)

    def size(self, path: str) -> int | None:
        """Return a file's size, None if there is none."""
        return self._run(lambda store: store.size(path))

    def list(self, prefix: str) -> List[StoredObject]:
        """Return the files whose paths start with a prefix, in order."""
        return self._run(lambda store: store.list(prefix))

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        self._run(lambda store: store.delete(path))

    def _run(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._ask(ask))
        # A notebook's thread already runs a loop and cannot run a second one, so use another
        # thread.
        with ThreadPoolExecutor(1, "rookery-table") as thread:
            return thread.submit(asyncio.run, self._ask(ask)).result()

    async def _ask(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        store = open_store(self.url)
        try:
            return await ask(store)
        finally:
            await store.close()


def below(location: str, name: str) -> str:
    """Return the location of a subfolder."""
    place, mark, options = location.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{options}"
