"""Reads offsets of partitions as Arrow, in tasks, directly from the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from rookery.direct.blockinglog import open_shared
from rookery.direct.blockingreader import reader
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError, Gone
from rookery.log.read.rangeplan import Gap, OffsetRange, PlannedRange, ReadPlanner
from rookery.records.reading import ReadSettings

_BATCH_BYTES: Final = 16 * 1024 * 1024
_BATCH_ROWS: Final = 64 * 1024


def plan_ranges(place: ClusterAddress, wanted: Sequence[OffsetRange]) -> list[PlannedRange]:
    """Plan offsets by the newest state, in this process.

    Raises:
        Gone: some of them no longer exist.
    """
    log = open_shared(place)
    planner = ReadPlanner(log.log)

    async def plan() -> list[PlannedRange]:
        await log.log.barrier()
        return await planner.plan(wanted)

    planned = log.run(plan())
    if planner.gaps:
        refuse(planner.gaps)
    return planned


def read(
    place: ClusterAddress, ranges: Sequence[PlannedRange], columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the committed records of ranges, one range after another.

    Raises:
        Gone: some of them no longer exist.
        Corrupt, Unavailable: they cannot be read.
        ConfigError: a record is too large for a job.
    """
    reading = ReadSettings(columns, max_bytes=_BATCH_BYTES, max_rows=_BATCH_ROWS)
    try:
        yield from reader(place).columns(ranges, reading, refuse)
    except ConfigError as error:
        raise ConfigError(
            f"jobs take no record of more than {_BATCH_BYTES} bytes; consume it, and produce it "
            f"again ({error})"
        ) from error


def refuse(gaps: Sequence[Gap]) -> None:
    """Refuse to continue with missing records.

    Raises:
        Gone: always.
    """
    raise Gone(f"records that the job needs no longer exist: {'; '.join(map(str, gaps[:5]))}")
