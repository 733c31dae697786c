"""How far a copy to a Kafka is: kept there, in a compacted topic, by the same transactions.

    key `next`          ──► {"next": source offset, "rows": how many, "topic": id, "target": id,
                             "copy": name}
    key `{"offset": N}` ──► {"runs": [[source offset, offset, how many], …], "target": id}

The runs of a slice are in as many records as they need, since a broker takes none of any size.
Every topic has one of its own, and every partition the partition of its number, so that no other
writer's open transaction hides what was committed. Both name the topics by their ids, where these
are known: a topic that was deleted and created again is another one.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rookery.client.client import Client
from rookery.client.fetch import FetchSettings, Isolation
from rookery.client.transactions import StoredBatch
from rookery.errors import Conflict
from rookery.model.partition import TopicPartition

_NEXT: Final = b"next"
# Of a record: some 200 kB, which every broker takes.
_RUNS: Final = 4096
_COMMITTED: Final = FetchSettings(isolation=Isolation.READ_COMMITTED)


class CopiedRun(NamedTuple):
    """Records whose offsets follow each other on both sides."""

    source: int
    offset: int
    records: int


class CopyPosition(NamedTuple):
    """Where the copy of a partition is."""

    next: int
    """The next offset of the source; -1: it has not begun."""
    rows: int = 0
    topic: str = ""
    """The source's id."""
    target: str = ""
    """The copy's id; empty if that Kafka has none."""
    copy: str = ""
    """The copy's name."""


class CopyEnds(NamedTuple):
    """What is copied to what."""

    topic: str
    topic_id: str
    copy: str
    copy_id: str
    """Empty if that Kafka has none."""


def runs_of(offsets: npt.NDArray[np.int64], written: list[StoredBatch]) -> list[CopiedRun]:
    """Find where records went, from their offsets and the batches they went in."""
    targets = np.concatenate([one.base_offset + np.arange(one.records) for one in written])
    breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(targets) != 1)) + 1
    starts = [0, *breaks.tolist()]
    ends = [*breaks.tolist(), len(offsets)]
    return [
        CopiedRun(int(offsets[at]), int(targets[at]), end - at)
        for at, end in zip(starts, ends, strict=True)
    ]


def progress_rows(reached: CopyPosition, runs: list[CopiedRun]) -> pa.RecordBatch:
    """Return the records that note a slice."""
    some = [runs[at : at + _RUNS] for at in range(0, len(runs), _RUNS)]
    keys = [json.dumps({"offset": part[0].source}).encode() for part in some]
    values = [json.dumps({"runs": part, "target": reached.target}).encode() for part in some]
    # Last: without transactions, whoever goes on from there has the map up to there.
    return pa.record_batch(
        {"key": [*keys, _NEXT], "value": [*values, json.dumps(reached._asdict()).encode()]}
    )


async def read_progress(client: Client, place: TopicPartition, ends: CopyEnds) -> CopyPosition:
    """Return where a copy is, by what was committed; at its beginning, if the copy was deleted.

    Raises:
        Conflict: what was noted is of another copy, or of another topic of that name.
        Unavailable: the cluster is out of reach.
    """
    found = await _noted(client, place)
    if found.copy and found.copy != ends.copy:
        raise Conflict(
            f"the job that keeps its place in {place.topic} copies to {found.copy}, not to "
            f"{ends.copy}: choose another name for this one"
        )
    if found.target and ends.copy_id and found.target != ends.copy_id:
        found = CopyPosition(-1)
    if found.topic and found.topic != ends.topic_id:
        raise Conflict(
            f"topic {ends.topic} was deleted and created again since this job read it: begin a "
            "new job (name), with a new target (prefix)"
        )
    return found._replace(topic=ends.topic_id, target=ends.copy_id, copy=ends.copy)


async def _noted(client: Client, place: TopicPartition) -> CopyPosition:
    found = CopyPosition(-1)
    records = client.read(place.topic, place.partition, settings=_COMMITTED)
    async for record in records:
        if record.key == _NEXT and record.value is not None:
            found = CopyPosition(**json.loads(record.value))
    return found


async def read_map(client: Client, place: TopicPartition) -> list[CopiedRun]:
    """Return the offset map of a partition: which records went where."""
    found: dict[str, list[CopiedRun]] = {}
    target = ""
    async for record in client.read(place.topic, place.partition, settings=_COMMITTED):
        if record.value is None:
            continue
        value = json.loads(record.value)
        if record.key == _NEXT:
            target = value.get("target", "")
        else:
            runs = found.setdefault(value.get("target", ""), [])
            runs += [CopiedRun(*one) for one in value["runs"]]
    return sorted(found.get(target, []))
