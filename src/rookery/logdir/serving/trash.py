"""Segments and folders that were renamed and wait to be deleted, as in Kafka.

    0….log ──► 0….log.deleted ──► after file.delete.delay.ms: gone

A broker that stops before that leaves them on the disk. The next start deletes them if retention
is confirmed, and so does Kafka's.
"""

from __future__ import annotations

import logging
import shutil
from collections import deque
from pathlib import Path

log = logging.getLogger(__name__)


class Trash:
    """What is deleted, and when; filled and emptied by different threads."""

    def __init__(self) -> None:
        self._items: deque[tuple[int, Path]] = deque()

    def add(self, path: Path, due_ms: int) -> None:
        """Have a file or folder deleted at a time."""
        self._items.append((due_ms, path))

    def empty(self, now_ms: int) -> None:
        """Delete what is due.

        Raises:
            OSError: a file could not be deleted; it is tried again next time.
        """
        for _ in range(len(self._items)):
            due_ms, path = self._items.popleft()
            if due_ms > now_ms:
                self._items.append((due_ms, path))
                continue
            try:
                delete(path)
            except OSError:
                self._items.append((due_ms, path))
                raise


def delete(path: Path) -> None:
    """Delete a file or folder, and log it.

    Raises:
        OSError: it is still there.
    """
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    log.info("deleted %s", path)
