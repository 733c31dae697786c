"""Events of sinks: writers that store objects first and commit all of them together.

    SinkPartStaged … SinkPartStaged ──► SinkCommitted     all parts get their offsets
                                   └──► SinkAborted       or none does

A part gets no offsets yet, so a commit can be of any size although entries are small.
"""

from __future__ import annotations

from rookery.wire.message import Message, PartitionId, TopicId, field, i32, i64


class SinkPartStaged(Message, key=100, versions=range(1), flexible=0):
    """An object, or a part of its contents, waits for the commit of its batch."""

    sink_id: str  # empty: a single write, which is not remembered
    query_id: str
    batch_id: i64
    object_id: i64
    part: i32
    parts: i32  # of this object
    position: i64  # of the first run; the others follow it in the object without a gap
    runs: list[StagedRun]


class StagedRun(Message):
    """Contiguous batches of one partition, which become one row."""

    topic_id: TopicId
    partition: PartitionId
    size: i32
    records: i32  # offsets that they take up
    max_timestamp: i64


class SinkCommitted(Message, key=101, versions=range(1), flexible=0):
    """A batch is complete: its objects get their offsets in the order of the list.

    Void if the sink already has this batch. Rejected if another query writes to the sink, or if
    this query is past that batch, unless it takes over.
    """

    sink_id: str
    query_id: str
    batch_id: i64
    object_ids: list[i64]
    source_offsets: str  # the position of the batch's source, as text
    takes_over: bool = field(default=False)


class SinkAborted(Message, key=102, versions=range(1), flexible=0):
    """Objects will not be committed and are condemned; void for committed objects."""

    object_ids: list[i64]


class SinkForgotten(Message, key=103, versions=range(1), flexible=0):
    """A sink is no longer used: its data stays, and its id can be used again."""

    sink_id: str
