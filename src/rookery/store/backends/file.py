"""Objects as files below a folder: `file:///path`.

An object is written under a unique name in `~new`, synced, and then linked to its key. A link never
replaces a file, so one of several creators wins, and a partial object is never visible. The parent
folders are synced before and after. Files that a killed process leaves in `~new` are not objects;
they are removed when the store is opened a day later. Replacing or deleting an object requires the
lock `~lock`. No key contains a `~`.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from builtins import list as List  # noqa: N812 (the port has a method of that name)
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rookery.clock import Clock, SystemClock, SystemRandom
from rookery.errors import ConfigError, Conflict, Unavailable
from rookery.store.port import (
    Buffer,
    NotFound,
    Store,
    StoredObject,
    StoreTraits,
    check_key,
    check_range,
)
from rookery.store.syncfolder import sync_folder

_UNFINISHED: Final = "~new"
_LOCK: Final = "~lock"
_ABANDONED_MS: Final = 24 * 60 * 60 * 1000
# The most buffers that one writev accepts on every supported system.
_PARTS: Final = 1024


def traits(url: str) -> StoreTraits:
    """Return the traits: links and a lock implement conditional writes."""
    return StoreTraits(has_preconditions=True, path=_folder(url))


def open(url: str) -> Store:  # noqa: A001 (a backend's interface)
    """Open the store in a folder, which is created if it is absent."""
    return FileStore(_folder(url))


def _folder(url: str) -> Path:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or parts.query or parts.fragment or not path or "\0" in path:
        raise ConfigError(f"store {url!r}: write file:///absolute/path or file:path")
    return Path(path).absolute()


class FileStore:
    """A store in a folder."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._folder = folder
        self._unfinished = folder / _UNFINISHED
        with _translate_errors(folder):
            _make_folders(self._unfinished)
            self._sweep((clock or SystemClock()).now_ms() - _ABANDONED_MS)

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Write, sync and link a new file."""
        check_key(key)
        await asyncio.to_thread(self._create, key, parts)

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Return a range of a file."""
        check_key(key)
        check_range(key, start, size)
        return await asyncio.to_thread(self._read, key, start, size)

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        """Return a range of a file."""
        return await self.read(key, start, size)

    async def size(self, key: str) -> int | None:
        """Return a file's size, None if there is none."""
        check_key(key)
        return await asyncio.to_thread(self._size, key)

    async def list(self, prefix: str = "") -> List[StoredObject]:
        """Return the files whose keys begin with the prefix."""
        return await asyncio.to_thread(self._list, prefix)

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Return a file and its hash, None if there is no file."""
        try:
            data = await self.read(key)
        except NotFound:
            return None
        return data, _version(data)

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace a file that still has that version."""
        check_key(key)
        await asyncio.to_thread(self._replace, key, data, version)
        return _version(data)

    async def delete(self, key: str) -> None:
        """Unlink a file, if it exists. Its folders are kept: another writer may need them."""
        check_key(key)
        await asyncio.to_thread(self._delete, key)

    async def close(self) -> None:
        """Do nothing: a folder needs no closing."""

    def _create(self, key: str, parts: Sequence[Buffer]) -> None:
        target = self._folder / key
        unfinished = self._unfinished / SystemRandom().token(16).hex()
        with _translate_errors(target):
            _make_folders(target.parent)
            try:
                _write(unfinished, parts)
                target.hardlink_to(unfinished)
            except FileExistsError:
                raise Conflict(f"object {key!r} exists already") from None
            finally:
                unfinished.unlink(missing_ok=True)
            sync_folder(target.parent)

    def _replace(self, key: str, data: bytes, version: str) -> None:
        target = self._folder / key
        unfinished = self._unfinished / SystemRandom().token(16).hex()
        with _translate_errors(target), self._lock():
            try:
                old = self._read(key, 0, None)
            except NotFound:
                raise Conflict(f"object {key!r} no longer exists") from None
            if _version(old) != version:
                raise Conflict(f"object {key!r} is no longer version {version!r}")
            try:
                _write(unfinished, [data])
                unfinished.replace(target)
            finally:
                unfinished.unlink(missing_ok=True)
            sync_folder(target.parent)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        fd = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # Closing the file releases the lock.
            yield
        finally:
            os.close(fd)

    def _read(self, key: str, start: int, size: int | None) -> bytes:
        path = self._folder / key
        with _translate_errors(path):
            try:
                with path.open("rb", buffering=0) as file:
                    total = os.fstat(file.fileno()).st_size
                    check_range(key, start, size, total)
                    wanted = total - start if size is None else min(size, total - start)
                    return _pread(file.fileno(), start, wanted, path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise NotFound(key) from None

    def _size(self, key: str) -> int | None:
        path = self._folder / key
        with _translate_errors(path):
            try:
                return path.stat().st_size if path.is_file() else None
            except FileNotFoundError:
                return None

    def _list(self, prefix: str) -> List[StoredObject]:
        # Only the folder that is the complete part of the prefix can contain matches.
        whole, slash, _ = prefix.rpartition("/")
        if slash:
            check_key(whole)
        with _translate_errors(self._folder):
            listed = self._walk(self._folder / whole, whole + slash)
            return sorted(stored for stored in listed if stored.key.startswith(prefix))

    def _walk(self, folder: Path, path: str) -> Iterator[StoredObject]:
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.name.startswith("~"):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(folder / entry.name, f"{path}{entry.name}/")
            elif (size := self._size(f"{path}{entry.name}")) is not None:
                yield StoredObject(f"{path}{entry.name}", size)

    def _delete(self, key: str) -> None:
        path = self._folder / key
        with _translate_errors(path), self._lock():
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return
            sync_folder(path.parent)

    def _sweep(self, before_ms: int) -> None:
        for path in self._unfinished.iterdir():
            try:
                if path.stat().st_mtime_ns < before_ms * 1_000_000:
                    path.unlink()
            except FileNotFoundError:
                continue  # Its writer has just finished it.


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, parts: Sequence[Buffer]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = [memoryview(part).cast("B") for part in parts if len(part)]
        while left:
            written = os.writev(fd, left[:_PARTS])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]
        os.fsync(fd)
    finally:
        os.close(fd)


def _pread(fd: int, start: int, size: int, path: Path) -> bytes:
    pieces = []
    while size:
        piece = os.pread(fd, size, start)
        if not piece:
            raise Unavailable(f"{path}: the file became shorter while it was read")
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _make_folders(folder: Path) -> None:
    """Create the folder and its parents durably, so that they survive a power loss."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{path}: {error.strerror}; check the disk and its permissions"
        ) from error
