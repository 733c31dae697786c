"""Spills batches that do not fit into memory to files, unchanged, one file per partition.

A file has no name, so no file remains after a crash. It is mostly read in the order in which it was
written, and is truncated when all of it was read.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import IO

from rookery.consumer.order.block import Chunk
from rookery.consumer.settings import Spill
from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition


class SpillFiles:
    """Stores the bytes of chunks on disk until they are needed."""

    def __init__(self, settings: Spill) -> None:
        """Check that the folder can be used.

        Raises:
            ConfigError: the folder cannot be used.
        """
        self._settings = settings
        self._files: dict[TopicPartition, IO[bytes]] = {}
        self._left: dict[TopicPartition, int] = {}
        self._held = 0
        self.written = 0
        """The total number of bytes written."""
        self._file(TopicPartition("", 0)).close()
        self._files.clear()

    def put(self, chunk: Chunk) -> Chunk | None:
        """Write a chunk's bytes; return it without them, or None if there is no room."""
        size = len(chunk.data)
        if self._held + size > self._settings.max_bytes:
            return None
        file = self._file(chunk.place)
        at = file.seek(0, 2)
        file.write(chunk.data)
        file.flush()
        self._held += size
        self.written += size
        self._left[chunk.place] = self._left.get(chunk.place, 0) + 1
        return replace(chunk, data=b"", stored=(at, size))

    def take(self, chunk: Chunk) -> Chunk:
        """Return a chunk with its bytes, and drop them from the file."""
        if chunk.stored is None:
            return chunk
        at, size = chunk.stored
        file = self._file(chunk.place)
        file.seek(at)
        data = file.read(size)
        self.drop(chunk)
        return replace(chunk, data=data, stored=None)

    def drop(self, chunk: Chunk) -> None:
        """Drop a chunk's bytes."""
        if chunk.stored is None:
            return
        self._held -= chunk.stored[1]
        self._left[chunk.place] -= 1
        if not self._left[chunk.place]:
            self._file(chunk.place).truncate(0)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _file(self, place: TopicPartition) -> IO[bytes]:
        if place not in self._files:
            folder = self._settings.folder
            try:
                made = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (`close` ends it)
            except OSError as error:
                raise ConfigError(f"spill={folder}: cannot be used: {error}") from error
            self._files[place] = made
        return self._files[place]
