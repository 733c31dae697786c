"""Reads small files of a log directory whole, up to a size limit."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rookery.errors import Corrupt

MAX_TEXT_BYTES: Final = 64 * 1024 * 1024
"""A checkpoint of a million partitions is half as large."""


def read_text(path: Path) -> str | None:
    """Read a text file; None if it does not exist.

    Raises:
        Corrupt: it is far too large, or not text; the error begins with its path.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_TEXT_BYTES:
        reason = f"is larger than {MAX_TEXT_BYTES} bytes, which no such file is"
        raise Corrupt(reason, name=str(path))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"byte {error.start}: is not text", name=str(path)) from error
