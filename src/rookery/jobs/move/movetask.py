"""One task of a job that moves records: reads one log and stages in another, without a commit.

ranges of offsets, or a span of time ──► rows ──► route ──► staged objects
                                          └─ proof, and where each row goes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.blockinglog import open_shared
from rookery.direct.blockingreader import plan_again
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress, check_host
from rookery.direct.rowstager import RowStager
from rookery.direct.timeorder import Reached, SpanShare, read_in_order
from rookery.jobs.move.offsetmap import pack_pieces, piece
from rookery.jobs.move.rangereads import read, refuse
from rookery.jobs.move.route import TopicRoute
from rookery.jobs.proof import COLUMNS, Proof, prove
from rookery.log.read.rangeplan import PlannedRange

READ_COLUMNS: Final = ("topic", "partition", "offset", *COLUMNS)


class Move(NamedTuple):
    """The work of one task."""

    source: ClusterAddress
    source_host: str
    target: ClusterAddress
    target_host: str
    share: list[PlannedRange] | SpanShare
    route: TopicRoute
    packing: PackSettings
    batch: SinkBatch | None
    """The batch for which rows are staged; None: nothing is written, and only the map is built."""
    has_map: bool
    proved: tuple[str, ...] = COLUMNS
    """The columns that do not change."""


class MoveResult(NamedTuple):
    """The result of a task."""

    object_ids: list[int]
    rows: int
    proof: Proof
    origins: bytes
    """A piece of the offset map; empty if not requested."""
    reached: Reached
    """For a span of time, its end offset in each partition."""


def move(task: Move) -> MoveResult:
    """Read and stage the records.

    Raises:
        Error: the move failed; staged objects were discarded.
    """
    check_host(task.source, task.source_host)
    check_host(task.target, task.target_host)
    return _MoveRun(task).run()


class _MoveRun:
    """One running task."""

    def __init__(self, task: Move) -> None:
        self._task = task
        self._log = open_shared(task.target)
        self._pieces: list[pa.RecordBatch] = []
        self._staging: RowStager | None = None
        self._rows = 0
        self._reached: Reached = {}
        if task.batch is not None:
            packing = replace(task.packing, stamps=False)  # records keep their timestamps
            self._staging = RowStager(self._log.log, task.batch, packing)

    def run(self) -> MoveResult:
        objects = []
        try:
            if self._staging is not None:
                self._log.run(self._staging.start())
            proof = prove(self._stage_rows())
            if self._staging is not None:
                objects = self._log.run(self._staging.finish())
        except BaseException:
            if self._staging is not None:
                self._log.run(self._staging.abort())
            raise
        origins = pack_pieces(self._pieces) if self._task.has_map else b""
        staged = [written.object_id for written in objects]
        return MoveResult(staged, self._rows, proof, origins, self._reached)

    def _stage_rows(self) -> Iterator[pa.RecordBatch]:
        """Stage rows; yield the columns to prove."""
        task = self._task
        for batch in rows_of(task.source, task.share, self._reached):
            if not batch.num_rows:
                continue
            records = task.route.send(batch)
            self._rows += batch.num_rows
            if task.has_map:
                self._pieces.append(piece(batch, records))
            if self._staging is not None:
                self._log.run(self._staging.add(records))
            yield batch.select(list(task.proved))


def rows_of(
    place: ClusterAddress, share: list[PlannedRange] | SpanShare, reached: Reached
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges one after another, or those of a span in time order."""
    if not isinstance(share, SpanShare):
        return read(place, share, READ_COLUMNS)

    def again(planned: PlannedRange, begin: int, end: int) -> PlannedRange | None:
        return plan_again(place, replace(planned, end=end), begin, refuse)

    def read_one(planned: PlannedRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return read(place, [planned], tuple(names))

    return read_in_order(share, READ_COLUMNS, read_one, again, reached)
