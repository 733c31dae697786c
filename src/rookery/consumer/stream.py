"""The stream that users hold: iteration, Arrow in all its forms, state, and the way to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from rookery.client.settings import ClientSettings
from rookery.clock import Clock, SystemClock, SystemRandom
from rookery.consumer.background import Background
from rookery.consumer.batch import Batch
from rookery.consumer.checkpoint import Checkpoint, Mark
from rookery.consumer.commits import Commits
from rookery.consumer.engine import Engine
from rookery.consumer.faults import Misuse
from rookery.consumer.feed import Feed
from rookery.consumer.kafka import KafkaSource
from rookery.consumer.member import Member
from rookery.consumer.opening import Opening, Subscription
from rookery.consumer.output import Shape
from rookery.consumer.progress import Bar, Progress, partition_table
from rookery.consumer.settings import StreamSettings, ms
from rookery.consumer.shelf import Shelves
from rookery.consumer.source import Source
from rookery.consumer.spill import SpillFiles
from rookery.direct.place import Place
from rookery.errors import ApiError, ConfigError, Error, Unavailable
from rookery.model.offset import EARLIEST
from rookery.model.partition import TopicPartition

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # it has no types
    import polars as pl

__all__ = ["OrderedStream", "Subscription"]

log = logging.getLogger(__name__)


class OrderedStream:
    """Rows of many partitions as one stream of Arrow batches, in the order of time.

    It connects when it is first used, or by `open`. It belongs to one reader at a time, and ends
    with `close`, a `with` block, or when nothing refers to it any more.
    """

    def __init__(
        self,
        cluster: str | ClientSettings | Place,
        wanted: Subscription,
        settings: StreamSettings,
        clock: Clock | None = None,
    ) -> None:
        """Say what is wanted; `rookery.read`, `replay` and `follow` are easier to use.

        Raises:
            ConfigError: something cannot be used; the text names it.
        """
        self._cluster = _checked(cluster, settings)
        self._wanted = wanted
        self._settings = settings
        self._clock = clock or SystemClock()
        self._made_at = int(self._clock.now_ms())
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._opened: _Opened | None = None
        self._is_closed = False
        self._last: Batch | None = None
        self._side: list[pa.RecordBatch] = []

    # Opening and closing.

    def open(self) -> Self:
        """Connect, and find out what is to be read.

        Raises:
            ConfigError: a position, decoder or setting cannot be used.
            ApiError: a topic does not exist, or we may not read it.
            Unavailable: the cluster is out of reach.
        """
        self._get()
        return self

    def close(self) -> None:
        """Close all connections; nothing is committed by it."""
        self._is_closed = True
        if self._opened is not None:
            self._opened.engine.is_interrupted = True
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

    def _get(self) -> _Opened:
        if os.getpid() != self._pid:
            raise Misuse("the stream was opened before a fork; make another one in this process")
        if self._is_closed:
            raise Misuse("the stream is closed; make another one")
        if self._opened is None:
            self._opened = _Opened(
                self._cluster, self._wanted, self._settings, self._clock, self._made_at
            )
            weakref.finalize(self, self._opened.finish)
        return self._opened

    # Batches.

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._next(None)
        if batch is None:
            raise StopIteration
        return batch

    def poll(self, timeout_ms: int = 0) -> Batch | None:
        """Return the next batch, or None if none comes within that time, or ever (`is_finished`).

        Raises:
            Error: as iteration does.
        """
        return self._next(timeout_ms)

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        work = asyncio.ensure_future(asyncio.to_thread(self._next, None))
        try:
            batch = await asyncio.shield(work)
        except asyncio.CancelledError:
            self._interrupt()
            await asyncio.gather(work, return_exceptions=True)
            raise
        if batch is None:
            raise StopAsyncIteration
        return batch

    def _interrupt(self) -> None:
        """Have a thread return that waits for a batch."""
        if self._opened is not None:
            self._opened.engine.is_interrupted = True
            with self._opened.shelves.news:
                self._opened.shelves.tell()

    def _next(self, wait_ms: int | None) -> Batch | None:
        if not self._lock.acquire(blocking=False):
            raise Misuse("the stream is being read elsewhere; one reader at a time")
        try:
            opened = self._get()
            if self._settings.commit == "on_next" and self._last is not None:
                self._last.commit()
                self._last = None
            opened.engine.is_interrupted = False
            batch = opened.engine.next(wait_ms)
            opened.bar.show(self._progress(opened), is_over=opened.engine.is_finished)
            self._last = batch
            return batch
        finally:
            self._lock.release()

    # Other forms.

    @property
    def schema(self) -> pa.Schema:
        """The columns that batches have."""
        return self._get().shape.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield plain record batches; rows that go aside are kept for `take_side`."""
        for batch in self:
            self._side += [one for one in (batch.late, batch.rejected) if one is not None]
            yield batch.data

    def tables(self) -> Iterator[pa.Table]:
        """Yield a table for each batch."""
        for data in self.batches():
            yield pa.Table.from_batches([data])

    def to_table(self) -> pa.Table:
        """Read to the end into one table."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def pandas(self) -> pd.DataFrame:
        """Read to the end into a pandas data frame."""
        return self.to_table().to_pandas()

    def polars(self) -> pl.DataFrame:
        """Read to the end into a polars data frame."""
        import polars  # noqa: PLC0415 (optional)

        frame = polars.from_arrow(self.to_table())
        assert isinstance(frame, polars.DataFrame)  # noqa: S101 (a table gives a frame)
        return frame

    def reader(self) -> pa.RecordBatchReader:
        """Return an Arrow reader, for whatever takes one."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the stream over by Arrow's C interface: DuckDB, polars and pyarrow read it."""
        reader: Any = self.reader()
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Tell the columns by Arrow's C interface."""
        return self.schema.__arrow_c_schema__()

    def take_side(self) -> list[pa.RecordBatch]:
        """Return late and rejected rows of what was read as plain batches, and forget them."""
        side, self._side = self._side, []
        return side

    # State.

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the stream stands behind the last batch handed out."""
        return self._get().engine.marks.maker()()

    @property
    def frontier(self) -> int | None:
        """The time in milliseconds below which nothing comes that is not late; None at first."""
        frontier = self._get().engine.frontier
        return frontier if frontier >= 0 else None

    @property
    def is_finished(self) -> bool:
        """Whether all was handed out."""
        return self._get().engine.is_finished

    @property
    def is_live(self) -> bool:
        """Whether every row was handed out that was there when the stream was opened."""
        return self._get().engine.has_caught_up

    def partitions(self) -> pa.Table:
        """Tell how every partition stands."""
        return partition_table(self._get().engine)

    def progress(self) -> Progress:
        """Tell how far the stream has come."""
        return self._progress(self._get())

    def _progress(self, opened: _Opened) -> Progress:
        return Progress.of(opened.engine, self._clock.monotonic_ms() - opened.opened_at)


class _Opened:
    """What an open stream consists of."""

    def __init__(
        self,
        cluster: ClientSettings | Place,
        wanted: Subscription,
        settings: StreamSettings,
        clock: Clock,
        made_at: int,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.opened_at = clock.monotonic_ms()
        self.bar = Bar(is_shown=settings.progress)
        self.background = Background()
        spill = None if settings.spill is None else SpillFiles(settings.spill)
        self.shelves = Shelves(settings.memory, spill)
        try:
            self._source = self.background.run(_made(self.background, cluster, settings))
            self._opening = Opening(self._source, wanted, settings, made_at)
            places = self.background.run(self._opening.places())
            self._topics = wanted.topics or tuple(sorted({place.topic for place in places}))
            is_member = settings.group is not None and wanted.is_live
            ranges = [] if is_member else self.background.run(self._opening.ranges(places))
            self.shape = Shape(settings, self._topics)
            self.engine = self._made_engine(wanted, made_at)
            self.commits = Commits(settings.group, self._source, self.background)
            self.engine.committer = self.commits
            self.engine.join_all(ranges)
            self._start(is_member=is_member, is_live=wanted.is_live)
        except BaseException:
            self.background.end()
            raise

    def _made_engine(self, wanted: Subscription, made_at: int) -> Engine:
        max_time_ms = made_at + ms(self._settings.max_time)
        resumes = wanted.resumes
        if resumes is not None:
            _check_resumed(resumes, self._settings, self._topics)
            if resumes.max_time_ms is not None:
                max_time_ms = resumes.max_time_ms
        engine = Engine(
            self.shelves,
            self.shape,
            self._settings,
            self._clock,
            max_time_ms,
            is_live=wanted.is_live,
        )
        if resumes is not None:
            engine.resume(resumes)
        return engine

    def _start(self, *, is_member: bool, is_live: bool) -> None:
        feed = Feed(self._source, self.shelves, self._settings, self._clock, SystemRandom())
        self.background.run(self.background.spawn(feed.run()))
        if is_member:
            self.background.run(self.background.spawn(self._be_member()))
        elif is_live:
            self.background.run(self.background.spawn(self._discover()))

    async def _be_member(self) -> None:
        """Read what the group's coordinator assigns."""
        if not isinstance(self._source, KafkaSource):
            raise ConfigError("group: groups need a broker; keep checkpoints instead")
        group = self._settings.group or ""
        member = Member(self._source.client, group, self._topics)
        self.commits.member = member

        async def on_given(places: Sequence[TopicPartition]) -> None:
            marks = await self._source.committed(group, places)
            ranges = await self._opening.ranges(places, marks)
            await asyncio.to_thread(self.engine.join_all, ranges)

        async def on_taken(places: Sequence[TopicPartition]) -> None:
            await asyncio.to_thread(self.engine.leave_all, places)

        try:
            await member.run(on_given, on_taken)
        except Error as error:
            self._fail(error)

    async def _discover(self) -> None:
        """Look for partitions that were added, and read them from their beginning."""
        while True:
            await asyncio.sleep(max(self._settings.discover.total_seconds(), 0.01))
            try:
                known = self.shelves.by_place
                places = [one for one in await self._opening.places() if one not in known]
                if places:
                    first = await self._source.find(dict.fromkeys(places, EARLIEST))
                    marks = {place: Mark(offset) for place, offset in first.items()}
                    ranges = await self._opening.ranges(places, marks)
                    await asyncio.to_thread(self.engine.join_all, ranges)
            except (ApiError, Unavailable) as error:
                log.debug("could not look for new partitions: %s", error)
            except Error as error:
                self._fail(error)
                return

    def _fail(self, error: Error) -> None:
        with self.shelves.news:
            self.shelves.failure = error
            self.shelves.tell()

    def finish(self) -> None:
        """Let everything go."""
        self.background.end()
        if self.shelves.spill is not None:
            self.shelves.spill.close()


async def _made(
    background: Background, cluster: ClientSettings | Place, settings: StreamSettings
) -> Source:
    if isinstance(cluster, ClientSettings):
        source: Source = KafkaSource(cluster, is_committed=settings.is_committed)
    else:
        from rookery.consumer.objects import ObjectSource  # noqa: PLC0415 (heavy)

        source = await ObjectSource.open(cluster, is_committed=settings.is_committed)
    await background.own(source)
    return source


def _checked(
    cluster: str | ClientSettings | Place, settings: StreamSettings
) -> ClientSettings | Place:
    if isinstance(cluster, Place):
        cluster.check()
        return cluster
    if isinstance(cluster, ClientSettings):
        return cluster
    if "://" in cluster:
        return Place(store=cluster)
    if not cluster:
        raise ConfigError("cluster: name bootstrap addresses, or the URL of a store")
    return ClientSettings(bootstrap=cluster, call_timeout_ms=max(ms(settings.deadline), 1))


def _check_resumed(
    resumes: Checkpoint, settings: StreamSettings, topics: tuple[str, ...] | list[str]
) -> None:
    """Refuse to go on with another order: rows would be lost or come twice."""
    if resumes.lateness_ms != ms(settings.lateness):
        raise ConfigError(
            f"lateness: the checkpoint was made with {resumes.lateness_ms} ms; resume with that"
        )
    if resumes.topics and tuple(topics) != resumes.topics:
        raise ConfigError(
            f"topics: the checkpoint was made with {list(resumes.topics)}, in this order"
        )
