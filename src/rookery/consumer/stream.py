"""The stream that users hold: iteration, state and closing; see `output/forms.py` for tables."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from rookery.client.settings import ClientSettings
from rookery.clock import Clock, SystemClock
from rookery.consumer.background import Background
from rookery.consumer.checkpoint import Checkpoint
from rookery.consumer.faults import Misuse
from rookery.consumer.openstream import OpenStream
from rookery.consumer.output.batch import Batch
from rookery.consumer.output.forms import ArrowForms
from rookery.consumer.output.progress import Progress, partition_table
from rookery.consumer.ranges import StreamSubscription
from rookery.consumer.settings import StreamSettings, ms
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError

__all__ = ["OrderedStream", "StreamSubscription"]

_ELSEWHERE: Final = "the stream is being read elsewhere; one reader at a time"


class OrderedStream(ArrowForms):
    """Rows of many partitions as one stream of Arrow batches, in order of time.

    It connects on first use, or with `open`. It allows one reader at a time. It ends with `close`,
    at the end of a `with` block, or when it is garbage-collected.
    """

    def __init__(
        self,
        cluster: str | ClientSettings | ClusterAddress,
        wanted: StreamSubscription,
        settings: StreamSettings,
        clock: Clock | None = None,
    ) -> None:
        """Create a stream; `rookery.read`, `replay` and `follow` are easier to use.

        Raises:
            ConfigError: an argument cannot be used; the message names it.
        """
        super().__init__()
        self._cluster = _check_cluster(cluster, settings)
        self._wanted = wanted
        self._settings = settings
        self._clock = clock or SystemClock()
        self._made_at = int(self._clock.now_ms())
        self._pid = os.getpid()
        # Reentrant, since an interrupt may have prevented its owner from releasing it.
        self._lock = threading.RLock()
        self._background: Background | None = None
        self._opened: OpenStream | None = None
        self._is_closed = False
        self._last: Batch | None = None

    # Opening and closing.

    def open(self) -> Self:
        """Connect and resolve the partitions and positions to read.

        Raises:
            ConfigError: a position, decoder or setting cannot be used.
            ApiError: a topic does not exist, or access to it is denied.
            Unavailable: the cluster cannot be reached.
        """
        self._get()
        return self

    def close(self) -> None:
        """Close all connections without committing."""
        self._is_closed = True
        # In a forked process, a lock may be held by a thread that exists in the parent only.
        if os.getpid() != self._pid:
            return
        self._interrupt()
        if self._opened is not None:
            self._opened.finish()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _get(self, is_cancelled: threading.Event | None = None) -> OpenStream:
        if os.getpid() != self._pid:
            raise Misuse("the stream was opened before a fork; make another one in this process")
        if self._is_closed:
            raise Misuse("the stream is closed; make another one")
        if self._opened is None:
            self._background = background = Background()
            # An interrupt sets its flag first: either it is seen here, or the background is ended.
            if self._is_interrupted(is_cancelled):
                background.end()
            self._opened = OpenStream(
                background,
                self._cluster,
                self._wanted,
                self._settings,
                self._clock,
                self._made_at,
            )
            weakref.finalize(self, self._opened.finish)
        return self._opened

    def _is_interrupted(self, is_cancelled: threading.Event | None) -> bool:
        return self._is_closed or (is_cancelled is not None and is_cancelled.is_set())

    # Batches.

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._next(None)
        if batch is None:
            raise StopIteration
        return batch

    def poll(self, timeout_ms: int = 0) -> Batch | None:
        """Return the next batch, or None after the timeout or at the end (`is_finished`).

        Raises:
            Error: as iteration does.
        """
        return self._next(timeout_ms)

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        is_cancelled = threading.Event()
        work = asyncio.ensure_future(asyncio.to_thread(self._next, None, is_cancelled))
        try:
            batch = await asyncio.shield(work)
        except asyncio.CancelledError:
            is_cancelled.set()
            self._interrupt()
            await self._keep(work)
            raise
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def _keep(self, work: asyncio.Future[Batch | None]) -> None:
        """Wait until a thread has returned; keep its batch for the next call."""
        while not work.done():
            with suppress(asyncio.CancelledError, Exception):
                await asyncio.shield(work)
        if work.cancelled() or work.exception() is not None or self._opened is None:
            return
        if (batch := work.result()) is not None:
            self._opened.engine.made, self._last = batch, None

    def _interrupt(self) -> None:
        """Make a thread return that waits for a batch, or for the stream to open."""
        if self._opened is not None:
            self._opened.engine.is_interrupted = True
            with self._opened.shelves.lock:
                self._opened.shelves.tell()
        elif self._background is not None:
            self._background.end()

    def _next(
        self, wait_ms: int | None, is_cancelled: threading.Event | None = None
    ) -> Batch | None:
        if not self._lock.acquire(blocking=False):
            raise Misuse(_ELSEWHERE)
        try:
            opened = self._get(is_cancelled)
            if self._settings.commit == "on_next" and self._last is not None:
                self._last.commit()
            self._last = None
            opened.engine.is_interrupted = False
            # Likewise, the interrupt is seen here or by the engine.
            if self._is_interrupted(is_cancelled):
                return None
            opened.engine.make(wait_ms)
            opened.bar.show(self._progress(opened), is_over=opened.engine.is_finished)
            is_made = opened.engine.made is not None
        finally:
            self._lock.release()
        # No function is called from here on, so an interrupt occurs either before or after the
        # batch is taken.
        self._last, opened.engine.made = opened.engine.made, None
        if is_made and self._last is None:
            raise Misuse(_ELSEWHERE)
        return self._last

    # State.

    @property
    def schema(self) -> pa.Schema:
        """The columns of batches."""
        return self._get().shape.schema

    @property
    def checkpoint(self) -> Checkpoint:
        """The stream's position after the last batch returned."""
        return self._get().engine.checkpoint()

    @property
    def frontier(self) -> int | None:
        """The time in milliseconds below which only late rows can arrive; None at first."""
        frontier = self._get().engine.frontier
        return frontier if frontier >= 0 else None

    @property
    def is_finished(self) -> bool:
        """Whether all rows were returned."""
        return self._get().engine.is_finished

    @property
    def is_live(self) -> bool:
        """Whether every row that existed when the stream was opened was returned."""
        return self._get().engine.states.has_caught_up

    def partitions(self) -> pa.Table:
        """Return the state of every partition."""
        return partition_table(self._get().engine)

    def progress(self) -> Progress:
        """Return the progress of the stream."""
        return self._progress(self._get())

    def _progress(self, opened: OpenStream) -> Progress:
        return Progress.of(opened.engine, self._clock.monotonic_ms() - opened.opened_at)


def _check_cluster(
    cluster: str | ClientSettings | ClusterAddress, settings: StreamSettings
) -> ClientSettings | ClusterAddress:
    if isinstance(cluster, ClusterAddress):
        cluster.check()
        return cluster
    if isinstance(cluster, ClientSettings):
        return cluster
    if "://" in cluster:
        return ClusterAddress(store=cluster)
    if not cluster:
        raise ConfigError("cluster: name bootstrap addresses, or the URL of a store")
    return ClientSettings(bootstrap=cluster, call_timeout_ms=max(ms(settings.deadline), 1))
