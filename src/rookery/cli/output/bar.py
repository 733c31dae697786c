"""A progress bar for a known number of bytes, on a terminal's standard error."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class ByteBar:
    """Shows how much of a task of known size is done, if the output is a terminal."""

    def __init__(self, verb: str, total: int, *, shown: bool = True) -> None:
        """Start at zero.

        Args:
            verb: the participle to show, as in `imported`.
            total: the number of bytes.
            shown: whether to show the bar; without a terminal it is never shown.
        """
        self._is_shown = shown and sys.stderr.isatty()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(verb, total=total)
        self.bytes = 0

    def __enter__(self) -> ByteBar:
        if self._is_shown:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._progress.stop()

    def add(self, size: int, _records: int = 0) -> None:
        """Count bytes."""
        self.bytes += size
        self._progress.update(self._task, advance=size)
