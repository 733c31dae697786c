"""A file that is read again when it has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from rookery.errors import ConfigError

T = TypeVar("T")


class FileVersion(NamedTuple):
    """Differs between two versions of a file."""

    inode: int
    size: int
    modified_ns: int
    mode: int


class WatchedFile(Generic[T]):
    """The value of a file, as it was read last."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        """Read the file.

        Args:
            path: the path of the file.
            read: returns the value; raises ConfigError if the file cannot be used.

        Raises:
            ConfigError: the file cannot be used.
        """
        self.path = path
        self._read = read
        self._loaded = self._version()
        self.value = read(path)

    def look(self) -> bool:
        """Read the file if it has changed; return whether it has.

        Raises:
            ConfigError: the changed file cannot be used; the previous value stays.
        """
        version = self._version()
        if version == self._loaded:
            return False
        try:
            self.value = self._read(self.path)
        except ConfigError as error:
            raise ConfigError(f"{error}; the previous version stays in use") from error
        self._loaded = version
        return True

    def _version(self) -> FileVersion | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return FileVersion(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_mode)
