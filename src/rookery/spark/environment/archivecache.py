"""Per-user cache of packed environments, so that each one is packed only once.

    ~/.cache/rookery/environments/<fingerprint>.tar.gz

The file name is the fingerprint of the contents, so a changed environment gets a new archive. Only
one process packs at a time. A process that uses an archive holds a shared lock on it until it ends,
because Spark also sends it to executors that start later. A locked archive is not removed.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from rookery.errors import ConfigError
from rookery.spark.environment.pack import STAGE_PREFIX

KEPT: Final = 3
"""The number of unused archives that are kept; each takes some 200 MB."""

_SUFFIX: Final = ".tar.gz"
_LOCK: Final = "lock"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of a user's packed environments."""
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "rookery" / "environments"


class ArchiveCache:
    """A folder of archives, named by fingerprint."""

    def __init__(self, folder: Path, report: Callable[[str], None], kept: int = KEPT) -> None:
        """Use a folder; `report` receives messages for the user."""
        self._folder = folder
        self._report = report
        self._kept = kept

    def get(self, fingerprint: str, write: Callable[[Path], object]) -> Path:
        """Return an archive, writing it if it is missing; it is kept until this process ends.

        Args:
            fingerprint: the fingerprint of its contents.
            write: writes the file atomically.

        Raises:
            ConfigError: the folder cannot be written to.
        """
        target = self._folder / f"{fingerprint}{_SUFFIX}"
        try:
            with self._lock():
                if not target.is_file():
                    self._clear()
                    write(target)
                _hold(target)
                os.utime(target)
                self._prune()
        except OSError as error:
            raise ConfigError(
                f"{self._folder}: the packed environment cannot be kept there: "
                f"{error.strerror or error}; set XDG_CACHE_HOME to another folder, or give "
                "--archive or --installed"
            ) from error
        return target

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / _LOCK).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._report("another process packs an environment: waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _clear(self) -> None:
        """Remove the staging folders of processes that were killed while packing."""
        for folder in self._folder.glob(f"{STAGE_PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _prune(self) -> None:
        """Remove the least recently used archives that are not in use."""
        idle = [path for path in self._folder.glob(f"*{_SUFFIX}") if not _is_held(path)]
        idle.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in idle[self._kept :]:
            path.unlink(missing_ok=True)


def _hold(path: Path) -> None:
    """Lock a file against removal, for as long as this process lives."""
    file: IO[bytes] = path.open("rb")
    fcntl.flock(file, fcntl.LOCK_SH)
    atexit.register(file.close)


def _is_held(path: Path) -> bool:
    with path.open("rb") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    return True
