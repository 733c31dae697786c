"""Resumes after the last batch of a sink when the checkpoint of its query is lost.

Every commit of a stream stores the offsets that its sources had reached. A new query starts there
and takes over the sink (`takeOver=true`, for one run). No row is lost, and none is written twice.
"""

from __future__ import annotations

import json
from contextlib import suppress

from rookery.direct.commit import last_commit
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError, Corrupt
from rookery.spark.read.offset import StreamOffset


async def resume_offset(log: DirectLog, sink_id: str) -> StreamOffset:
    """Return the offset at which a new query starts: after the sink's last batch.

    Raises:
        ConfigError: there is no such sink, or its last batch does not contain the offsets.
        Unavailable: the cluster log cannot be reached.
    """
    sink = await last_commit(log, sink_id)
    if sink is None:
        raise ConfigError(f"resumeFrom={sink_id!r}: nothing was ever committed to such a sink")
    offsets = _offsets(sink.source_offsets)
    if len(offsets) != 1:
        raise ConfigError(
            f"resumeFrom={sink_id!r}: its last batch (number {sink.batch_id}) names "
            f"{len(offsets)} sources of this kind, and exactly one is needed; the checkpoint must "
            "have been a folder of the driver's host, and the query must read one log"
        )
    return StreamOffset.beginning(offsets[0].next)


def _offsets(text: str) -> list[StreamOffset]:
    """Parse the offsets of Rookery sources; ignore those of other sources."""
    offsets = []
    lines: list[str] = []
    with suppress(ValueError):  # a batch write can store any text
        lines = json.loads(text or "[]")
    for line in lines:
        with suppress(Corrupt, ValueError, TypeError):
            read = json.loads(line)
            if isinstance(read, dict):
                offsets.append(StreamOffset.of(read))
    return offsets
