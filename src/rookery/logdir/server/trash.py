"""Renamed segments and folders that wait for deletion, as in Kafka.

    0….log ──► 0….log.deleted ──► after file.delete.delay.ms: gone

A broker that stops before that leaves them on disk. The next start deletes them if retention is
confirmed, as does a start of Kafka.
"""

from __future__ import annotations

import logging
import shutil
from collections import deque
from pathlib import Path

log = logging.getLogger(__name__)


class Trash:
    """Paths to delete with their due times; filled and emptied by different threads."""

    def __init__(self) -> None:
        self._items: deque[tuple[int, Path]] = deque()

    def add(self, path: Path, due_ms: int) -> None:
        """Schedule the deletion of a file or folder."""
        self._items.append((due_ms, path))

    def empty(self, now_ms: int) -> None:
        """Delete the paths that are due.

        Raises:
            OSError: a file could not be deleted; the next call tries again.
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
        OSError: it still exists.
    """
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    log.info("deleted %s", path)
