"""Puts the answers of a source on the shelves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from rookery.clock import Clock
from rookery.consumer.faults import LogTruncated
from rookery.consumer.fetch import chunks
from rookery.consumer.fetch.shelf import Shelf, Shelves
from rookery.consumer.fetch.source import PartitionAnswer
from rookery.consumer.settings import StreamSettings
from rookery.errors import Corrupt, Error
from rookery.records.batches import FIELDS, HEADER_SIZE, BatchHeader

log = logging.getLogger(__name__)

_MAX_CHUNK: Final = 256 * 1024
_MIN_CHUNK: Final = 16 * 1024
_TWICE: Final = 2


class AnswerIntake:
    """Interprets answers: batches, empty partitions, gaps, truncated logs and corrupt batches."""

    def __init__(
        self,
        shelves: Shelves,
        settings: StreamSettings,
        clock: Clock,
        on_error: Callable[[Shelf, Error], None],
    ) -> None:
        """Create an intake.

        Args:
            shelves: where the batches go.
            settings: how corrupt batches and transactions are treated.
            clock: measures when an answer arrived.
            on_error: called with a partition that cannot be read, and why; the lock is held.
        """
        self._shelves = shelves
        self._settings = settings
        self._clock = clock
        self._on_error = on_error

    def take(self, shelf: Shelf, answer: PartitionAnswer, *, is_alone: bool) -> None:
        """Take in the answer for a partition, which was requested alone or with others.

        The lock is held.
        """
        now = self._clock.monotonic_ms()
        self._shelves.changed.append(shelf)
        if answer.high_watermark >= 0:
            shelf.high_watermark = answer.high_watermark
            if self._settings.is_committed:
                shelf.last_stable_offset = answer.last_stable_offset
        if answer.headers:
            self._put(shelf, answer)
        elif answer.next_offset > shelf.position:
            shelf.position = answer.next_offset
        elif answer.error is None and answer.cut_back_to < 0:
            self._on_nothing(shelf, now, is_alone=is_alone)
        if answer.cut_back_to >= 0:
            shelf.fault = LogTruncated(shelf.place, shelf.position, answer.cut_back_to)
        elif answer.error is not None and not self._may_skip(shelf, answer):
            self._on_error(shelf, answer.error)
        else:
            shelf.is_answered = True
            shelf.heard_at = now
            shelf.tries = 0

    def _may_skip(self, shelf: Shelf, answer: PartitionAnswer) -> bool:
        """Skip a corrupt batch, if the settings allow it and its end can be determined."""
        begin = answer.headers[-1].end if answer.headers else 0
        is_asked = self._settings.on_corrupt == "skip" and isinstance(answer.error, Corrupt)
        if not is_asked or len(answer.data) - begin < HEADER_SIZE:
            return False
        header = BatchHeader._make((*FIELDS.unpack_from(answer.data, begin), begin))
        behind = header.last_offset + 1
        # The numbers of a corrupt batch are trusted only if they are plausible.
        if not shelf.position < behind <= shelf.high_watermark:
            return False
        log.warning(
            "%s: offsets %d to %d skipped: %s",
            shelf.place.text,
            shelf.position,
            behind - 1,
            answer.error,
        )
        shelf.lost += behind - shelf.position
        shelf.position = behind
        return True

    def _put(self, shelf: Shelf, answer: PartitionAnswer) -> None:
        memory, count = self._shelves.memory, len(self._shelves.by_place)
        chunk_bytes = min(max(memory // (4 * count), _MIN_CHUNK), _MAX_CHUNK)
        chunk_rows = self._settings.chunk_rows(count)
        wanted = chunks.ChunkRequest(
            shelf.place, shelf.position, shelf.end, chunk_bytes, chunk_rows
        )
        try:
            parts = list(chunks.cut(answer.data, answer.headers, answer.aborted, wanted))
        except Corrupt as error:
            self._on_error(shelf, error)
            return
        self._shelves.put(shelf, parts)
        last = answer.headers[-1]
        shelf.position = max(shelf.position, last.last_offset + 1)
        shelf.leader_epoch = last.partition_leader_epoch
        shelf.is_suspect, shelf.empties = False, 0
        shelf.empty_since = None
        if 0 <= shelf.last_readable <= shelf.position:
            # The response reaches the end of the log: no records follow these yet.
            shelf.empty_since = shelf.proved_at = self._clock.monotonic_ms()

    def _on_nothing(self, shelf: Shelf, now: int, *, is_alone: bool) -> None:
        """Distinguish an empty partition from a gap at the end and from a response without room."""
        readable = shelf.last_readable
        if readable < 0 or shelf.position >= min(readable, shelf.end):
            shelf.is_suspect = False
            if shelf.empty_since is None:
                shelf.empty_since = now
            shelf.proved_at = now
            return
        shelf.is_suspect = True
        shelf.empties += is_alone
        if shelf.empties >= _TWICE:
            # Requested alone twice, it returned no records although the log continues: this is a
            # gap.
            shelf.position = min(readable, shelf.end)
            shelf.is_suspect, shelf.empties = False, 0
