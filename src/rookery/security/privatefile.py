"""Files that only their owner can read, for keys and passwords. They appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rookery.errors import ConfigError
from rookery.store.syncfolder import sync_folder


def create_private(path: Path, data: bytes) -> Path:
    """Write a file that must not exist yet, and return its path.

    Folders that are missing are created with mode 0700; those that exist are left as they are.

    Raises:
        ConfigError: it exists, or cannot be written.
    """
    # A link fails if its name is taken; a rename would replace the file.
    return _write(path, data, _link)


def replace_private(path: Path, data: bytes) -> Path:
    """Write a file or replace it, and return its path. Otherwise like `create_private`."""
    return _write(path, data, os.replace)


def _write(path: Path, data: bytes, publish: Callable[[Path, Path], None]) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _make_folder(path.parent)
        # A crash may have left one.
        draft.unlink(missing_ok=True)
        try:
            _write_draft(draft, data)
            publish(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileExistsError as error:
        raise ConfigError("the file exists already", name=str(path)) from error
    except OSError as error:
        raise ConfigError(error.strerror or str(error), name=str(path)) from error
    return path


def _make_folder(folder: Path) -> None:
    # The mode of `mkdir` does not apply to the parents that it creates.
    for missing in reversed(
        [parent for parent in (folder, *folder.parents) if not parent.exists()]
    ):
        missing.mkdir(mode=0o700, exist_ok=True)


def _write_draft(draft: Path, data: bytes) -> None:
    # The mode is set at creation: no moment may pass in which others can open the file.
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _link(draft: Path, path: Path) -> None:
    path.hardlink_to(draft)
