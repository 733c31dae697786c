"""Feeds one stream of rows to several tables in parallel: a thread and a short queue for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty, Full, Queue
from threading import Thread
from typing import Final

import pyarrow as pa

from rookery.errors import Conflict
from rookery.tables.port import DataFile

_WAITING: Final = 4
"""The maximum number of batches queued for a table; more would only use memory."""
_LOOK_SECONDS: Final = 0.1

Stage = Callable[[Iterator[pa.RecordBatch]], list[DataFile]]


class Feeder:
    """Stages the rows that it receives, in a thread."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._queue: Queue[pa.RecordBatch | None] = Queue(_WAITING)
        self._files: list[DataFile] = []
        self._error: BaseException | None = None
        self._is_aborted = False
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, rows: pa.RecordBatch) -> None:
        """Queue rows; blocks while the queue is full.

        Raises:
            any error of staging.
        """
        if rows.num_rows:
            self._put(rows)

    def finish(self) -> list[DataFile]:
        """Wait until all rows are staged; return the files."""
        self._put(None)
        self._thread.join()
        self._check()
        return self._files

    def abort(self) -> None:
        """End the thread without a result."""
        self._is_aborted = True

    def _put(self, rows: pa.RecordBatch | None) -> None:
        while self._thread.is_alive():
            try:
                self._queue.put(rows, timeout=_LOOK_SECONDS)
                return
            except Full:
                continue
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._files = self._stage(self._rows())
        except BaseException as error:  # noqa: BLE001 (the feeding thread raises it)
            self._error = error

    def _rows(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                rows = self._queue.get(timeout=_LOOK_SECONDS)
            except Empty:
                if self._is_aborted:
                    raise Conflict("the task has failed elsewhere") from None
                continue
            if rows is None:
                return
            yield rows
