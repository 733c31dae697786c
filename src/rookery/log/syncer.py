"""Syncing what was acknowledged without a sync: full files under durability "os".

It happens in a thread of its own, in the order of the files, so that appends go on beside it.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from rookery.log.journalfile import JournalFile
from rookery.log.place import Place

log = logging.getLogger(__name__)


class Syncer:
    """Syncs and closes files one after the other."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "rookery-journal-sync")
        self._failed = False
        self.end: Place | None = None
        """Everything before it is known to be on the disk."""

    def add(self, file: JournalFile) -> None:
        """Sync and close the file when its turn comes."""
        self._executor.submit(self._sync, file)

    def close(self) -> None:
        """Wait for the last file."""
        self._executor.shutdown()

    def _sync(self, file: JournalFile) -> None:
        try:
            try:
                file.sync()
            finally:
                file.close()
        except OSError as error:
            # What the file held may be gone, so the known end never moves past it again.
            self._failed = True
            log.exception(
                "a journal file could not be synced; after a power loss records in it may be"
                " missing; check the disk",
                extra={"file": file.path, "error": error.errno},
            )
        if not self._failed:
            self.end = Place(file.identity, file.end)
