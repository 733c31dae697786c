"""The progress of a copy to a Kafka, stored there in a compacted topic by the same transactions.

    key `next`          ──► {"next": source offset, "rows": how many, "topic": id, "target": id,
                             "copy": name}
    key `{"offset": N}` ──► {"runs": [[source offset, offset, how many], …], "target": id}

The runs of a slice are spread over as many records as needed, since brokers limit the record size.
Every topic has its own progress topic, and every partition uses the partition with its number, so
that no other writer's open transaction hides committed progress. Both kinds of records name the
topics by id, where known: a topic that was deleted and recreated is a different topic.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rookery.client.client import Client
from rookery.client.fetch import FetchSettings, Isolation
from rookery.client.produce.transactions import StoredBatch
from rookery.errors import Conflict
from rookery.model.partition import TopicPartition

_NEXT: Final = b"next"
# The maximum number of runs in a record: about 200 kB, which every broker accepts.
_RUNS: Final = 4096
_COMMITTED: Final = FetchSettings(isolation=Isolation.READ_COMMITTED)


class CopiedRun(NamedTuple):
    """Records whose offsets are consecutive on both sides."""

    source: int
    offset: int
    records: int


class CopyPosition(NamedTuple):
    """The progress of a partition's copy."""

    next: int
    """The next offset of the source; -1: not started."""
    rows: int = 0
    topic: str = ""
    """The id of the source topic."""
    target: str = ""
    """The id of the copy; empty if that Kafka has none."""
    copy: str = ""
    """The name of the copy."""


class CopyEnds(NamedTuple):
    """The source and the target of a copy."""

    topic: str
    topic_id: str
    copy: str
    copy_id: str
    """Empty if that Kafka has none."""


def runs_of(offsets: npt.NDArray[np.int64], written: list[StoredBatch]) -> list[CopiedRun]:
    """Map source offsets to target offsets, from the batches that were written."""
    targets = np.concatenate([batch.base_offset + np.arange(batch.records) for batch in written])
    breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(targets) != 1)) + 1
    starts = [0, *breaks.tolist()]
    ends = [*breaks.tolist(), len(offsets)]
    return [
        CopiedRun(int(offsets[at]), int(targets[at]), end - at)
        for at, end in zip(starts, ends, strict=True)
    ]


def progress_rows(reached: CopyPosition, runs: list[CopiedRun]) -> pa.RecordBatch:
    """Return the records that store the progress of a slice."""
    some = [runs[at : at + _RUNS] for at in range(0, len(runs), _RUNS)]
    keys = [json.dumps({"offset": part[0].source}).encode() for part in some]
    values = [json.dumps({"runs": part, "target": reached.target}).encode() for part in some]
    # This record comes last: without transactions, a run that resumes from it has the map up to it.
    return pa.record_batch(
        {"key": [*keys, _NEXT], "value": [*values, json.dumps(reached._asdict()).encode()]}
    )


async def read_progress(client: Client, place: TopicPartition, ends: CopyEnds) -> CopyPosition:
    """Return the committed progress of a copy; the beginning, if the copy was deleted.

    Raises:
        Conflict: the stored progress belongs to another copy, or to another topic of that name.
        Unavailable: the cluster cannot be reached.
    """
    position = await _read_position(client, place)
    if position.copy and position.copy != ends.copy:
        raise Conflict(
            f"the job that keeps its place in {place.topic} copies to {position.copy}, not to "
            f"{ends.copy}: choose another name for this one"
        )
    if position.target and ends.copy_id and position.target != ends.copy_id:
        position = CopyPosition(-1)
    if position.topic and position.topic != ends.topic_id:
        raise Conflict(
            f"topic {ends.topic} was deleted and created again since this job read it: begin a "
            "new job (name), with a new target (prefix)"
        )
    return position._replace(topic=ends.topic_id, target=ends.copy_id, copy=ends.copy)


async def _read_position(client: Client, place: TopicPartition) -> CopyPosition:
    position = CopyPosition(-1)
    records = client.read(place.topic, place.partition, settings=_COMMITTED)
    async for record in records:
        if record.key == _NEXT and record.value is not None:
            position = CopyPosition(**json.loads(record.value))
    return position


async def read_map(client: Client, place: TopicPartition) -> list[CopiedRun]:
    """Return the offset map of a partition."""
    runs_by_target: dict[str, list[CopiedRun]] = {}
    target = ""
    async for record in client.read(place.topic, place.partition, settings=_COMMITTED):
        if record.value is None:
            continue
        value = json.loads(record.value)
        if record.key == _NEXT:
            target = value.get("target", "")
        else:
            runs = runs_by_target.setdefault(value.get("target", ""), [])
            runs += [CopiedRun(*run) for run in value["runs"]]
    return sorted(runs_by_target.get(target, []))
