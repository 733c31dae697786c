"""Going on from what a sink has got last, where the checkpoint of its query is lost.

Every commit of a stream keeps how far its sources had read. A new query begins there, and takes the
sink over (`takeOver=true`, for one run): no row is lost, and none is written twice.
"""

from __future__ import annotations

import json
from contextlib import suppress

from rookery.direct.commit import last_commit
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError, Corrupt
from rookery.spark.offset import StreamOffset


async def resume_offset(log: DirectLog, sink_id: str) -> StreamOffset:
    """Return where a new query shall begin to read: behind the sink's last batch.

    Raises:
        ConfigError: there is no such sink, or its last batch does not tell.
        Unavailable: the cluster log is out of reach.
    """
    sink = await last_commit(log, sink_id)
    if sink is None:
        raise ConfigError(f"resumeFrom={sink_id!r}: nothing was ever committed to such a sink")
    found = _offsets(sink.source_offsets)
    if len(found) != 1:
        raise ConfigError(
            f"resumeFrom={sink_id!r}: its last batch (number {sink.batch_id}) tells of "
            f"{len(found)} sources of this kind, and exactly one is needed; the checkpoint must "
            "have been a folder of the driver's host, and the query must read one log"
        )
    return StreamOffset.beginning(found[0].next)


def _offsets(text: str) -> list[StreamOffset]:
    """Read the offsets of our own sources; those of others are none of ours."""
    offsets = []
    lines: list[str] = []
    with suppress(ValueError):  # a batch write may have kept any text
        lines = json.loads(text or "[]")
    for line in lines:
        with suppress(Corrupt, ValueError, TypeError):
            read = json.loads(line)
            if isinstance(read, dict):
                offsets.append(StreamOffset.of(read))
    return offsets
