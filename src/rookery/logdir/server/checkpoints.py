"""The checkpoint files at the top of a log directory, which cover all its partitions.

Kafka writes them about every minute, and when it stops; Rookery does the same. Log starts are
written immediately, because a client that deleted records must not see them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock

from rookery.cluster.state.state import State
from rookery.formats.logfile.checkpoints import format_offsets
from rookery.formats.logfile.identity import format_clean_shutdown
from rookery.formats.logfile.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
)
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.writer.appendlog import AppendLog
from rookery.logdir.writer.smallfiles import replace
from rookery.model.partition import TopicPartition


class TopFiles:
    """Writes the checkpoints of every directory of a broker."""

    def __init__(self, loaded: LoadedDirectory, broker_epoch: int) -> None:
        self._loaded = loaded
        self._broker_epoch = broker_epoch
        self._written: dict[Path, bytes] = {}
        # Checkpoints are written periodically; log starts, whenever a client moves one.
        self._lock = Lock()

    def begin(self) -> None:
        """Mark the directory as possibly incomplete: it is being written."""
        for folder in self._loaded.directory.paths:
            (folder / CLEAN_SHUTDOWN).unlink(missing_ok=True)

    def write(self) -> None:
        """Write the high watermark, the recovery point and the log start of every log."""
        self._write(HIGH_WATERMARKS, self._high_watermark)
        self._write(RECOVERY_POINTS, lambda log: log.recovery_point)
        self.write_starts()

    def write_starts(self) -> None:
        """Write the log starts that differ from the first segment's base offset."""
        self._write(LOG_STARTS, self._start)

    def end(self) -> None:
        """Mark the directory as complete, so that Kafka skips recovery."""
        self.write()
        for folder in self._loaded.directory.paths:
            replace(folder / CLEAN_SHUTDOWN, format_clean_shutdown(self._broker_epoch).encode())

    def _write(self, name: str, offset_of: Callable[[AppendLog], int | None]) -> None:
        for folder in self._loaded.directory.paths:
            offsets: dict[TopicPartition, int] = {}
            for log in self._logs(folder):
                offset = offset_of(log)
                if offset is not None:
                    offsets[log.name] = offset
            data = format_offsets(offsets).encode()
            with self._lock:
                if self._written.get(folder / name) != data:
                    replace(folder / name, data)
                    self._written[folder / name] = data

    def _logs(self, folder: Path) -> Iterable[AppendLog]:
        logs = list(self._loaded.logs.values())
        return (log for log in logs if log.folder.parent == folder)

    def _high_watermark(self, log: AppendLog) -> int | None:
        return log.next_offset

    def _start(self, log: AppendLog) -> int | None:
        partition = self._state.topics.partition(log.topic_id, log.name.partition)
        held = log.held
        if partition is None or not held:
            return None
        return partition.log_start if partition.log_start > held[0].base_offset else None

    @property
    def _state(self) -> State:
        return self._loaded.state
