"""The `.log` files of a Kafka broker's directory, read only: `kafkadir:/path`, or several paths.

    {namespace}/{topic}/{partition}/segment-{base offset}.kfs   is   {topic}-{partition}/….log

They have the keys of segments, so that any code that knows a segment's key can read one. They
contain bare batches, without a header and a footer.
"""

from __future__ import annotations

import asyncio
import os
from builtins import list as List  # noqa: N812 (the port has a method of that name)
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from rookery.errors import ConfigError, Unavailable
from rookery.formats.keys import SEGMENT_ENDING, parse_segment_key
from rookery.formats.logfile.names import FileKind, file_name
from rookery.model.partition import TopicPartition
from rookery.store.port import Buffer, NotFound, Store, StoredObject, StoreTraits, check_range


def traits(_url: str) -> StoreTraits:
    """Return the traits: nothing is ever written, and there may be several folders."""
    return StoreTraits(has_preconditions=True)


def open(url: str) -> Store:  # noqa: A001 (a backend's interface)
    """Open the directories of a broker; missing ones are not created."""
    _, _, names = url.partition(":")
    paths = [Path(unquote(name)) for name in names.split(",") if name]
    if not paths or not all(path.is_absolute() for path in paths):
        raise ConfigError(f"store {url!r}: write kafkadir:/absolute/path")
    return KafkaDirStore(paths)


class KafkaDirStore:
    """A read-only store in the directory of a Kafka broker."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Refuse."""
        del parts
        raise self._refusal(key)

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Return a range of a log file."""
        check_range(key, start, size)
        return await asyncio.to_thread(self._read, key, start, size)

    async def view(self, key: str, start: int = 0, size: int | None = None) -> Buffer:
        """Return a range of a log file."""
        return await self.read(key, start, size)

    async def size(self, key: str) -> int | None:
        """Return a log file's size, None if there is none."""
        path = await asyncio.to_thread(self._find, key)
        return None if path is None else path.stat().st_size

    async def list(self, prefix: str = "") -> List[StoredObject]:
        """Return an empty list: file names alone do not show which files are valid."""
        del prefix
        return []

    async def read_version(self, key: str) -> tuple[bytes, str] | None:
        """Return None: nothing here has versions."""
        del key
        return None

    async def replace(self, key: str, data: bytes, version: str) -> str:
        """Refuse."""
        del data, version
        raise self._refusal(key)

    async def delete(self, key: str) -> None:
        """Refuse."""
        raise self._refusal(key)

    async def close(self) -> None:
        """Do nothing: no handle is open."""

    def _find(self, key: str) -> Path | None:
        parsed = parse_segment_key(key)
        if parsed is None or parsed.ending != SEGMENT_ENDING or parsed.generation is not None:
            return None
        folder = TopicPartition(parsed.topic, parsed.partition).text
        name = file_name(parsed.base_offset, FileKind.LOG)
        paths = (root / folder / name for root in self._folders)
        return next((path for path in paths if path.exists()), None)

    def _read(self, key: str, start: int, size: int | None) -> bytes:
        path = self._find(key)
        if path is None:
            raise NotFound(key)
        try:
            with path.open("rb", buffering=0) as file:
                total = os.fstat(file.fileno()).st_size
                check_range(key, start, size, total)
                return _pread(file.fileno(), start, total - start if size is None else size)
        except FileNotFoundError:
            raise NotFound(key) from None
        except OSError as error:
            raise Unavailable(f"{path}: cannot be read: {error.strerror}") from error

    def _refusal(self, key: str) -> ConfigError:
        names = ", ".join(map(str, self._folders))
        return ConfigError(f"{names}: Kafka's directory is read only here; cannot write {key!r}")


def _pread(descriptor: int, start: int, size: int) -> bytes:
    data = os.pread(descriptor, size, start)
    while len(data) < size and (more := os.pread(descriptor, size - len(data), start + len(data))):
        data += more
    return data
