"""The lock that gives one process exclusive use of a log directory; Kafka uses it, too."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from rookery.errors import ConfigError
from rookery.formats.logfile.names import LOCK


class DirectoryLock:
    """Locks on directories, held until they are closed or the process exits."""

    def __init__(self, folders: Sequence[Path], *, is_shared: bool) -> None:
        """Take the locks; a read-only process creates no lock file.

        Raises:
            ConfigError: a Kafka or another broker uses a directory, or it cannot be written.
        """
        self._fds: list[int] = []
        self._made: list[Path] = []
        try:
            for folder in folders:
                self._lock(folder, is_shared=is_shared)
        except BaseException:
            self._made.clear()
            self.close()
            raise

    def _lock(self, folder: Path, *, is_shared: bool) -> None:
        path = folder / LOCK
        flags = os.O_RDONLY if is_shared else os.O_RDWR | os.O_CREAT
        try:
            fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            return  # it was never locked, and a read-only process creates no lock
        except OSError as error:
            raise ConfigError(
                f"log-dir: {path} cannot be opened: {error.strerror}; change its permissions, or "
                "serve the directory with --read-only"
            ) from error
        self._fds.append(fd)
        if not is_shared:
            self._made.append(path)
        kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        try:
            fcntl.lockf(fd, kind | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"log-dir: {folder} is in use by another process, a Kafka or a broker; stop it"
            ) from error

    def close(self) -> None:
        """Release the directories; as Kafka does, remove the lock files."""
        while self._made:
            self._made.pop().unlink(missing_ok=True)
        while self._fds:
            os.close(self._fds.pop())
