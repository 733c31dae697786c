"""Unpacks a packed environment for the driver.

Spark uses one path to Python for planning and for reading a source: `./environment/bin/python`. So
the path must also exist in the folder in which the driver's Java process starts.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError
from rookery.spark.environment.pack import FOLDER

# Records which archive was unpacked, so that the same one is not unpacked again.
_NOTE: Final = ".archive"


def check_archive(archive: Path) -> None:
    """Refuse an archive that does not exist.

    Raises:
        ConfigError: there is no such file.
    """
    if not archive.is_file():
        raise ConfigError(f"{archive}: no such file; `rookery spark pack` makes it")


def unpack_for_driver(archive: Path, folder: Path) -> None:
    """Unpack an archive into `environment` below a folder, unless it is already unpacked there.

    Raises:
        ConfigError: the archive does not exist, or `environment` exists and was not unpacked by
            Rookery.
    """
    check_archive(archive)
    target, note = folder / FOLDER, folder / FOLDER / _NOTE
    status = archive.stat()
    mark = f"{archive.absolute()} {status.st_size} {status.st_mtime_ns}"
    if note.is_file():
        if note.read_text("utf-8") == mark:
            return
    elif target.exists():
        raise ConfigError(f"{target.absolute()} is in the way: remove it or choose another folder")
    fresh = target.with_name(f".{FOLDER}-{os.getpid()}")
    with tarfile.open(archive) as file:
        # This filter refuses members outside the folder. The stricter "data" would also refuse the
        # absolute links that an environment has to its interpreter.
        file.extractall(fresh, filter="tar")  # nosec B202
    (fresh / _NOTE).write_text(mark, "utf-8")
    shutil.rmtree(target, ignore_errors=True)
    fresh.replace(target)
