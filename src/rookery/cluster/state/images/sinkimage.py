"""Sinks and what is staged for them in a state's image."""

from __future__ import annotations

from rookery.cluster.state.sinks import RUN, SinkBatch, Sinks, SinkState, StagedObject
from rookery.errors import Corrupt
from rookery.wire.message import Message, Records, i32, i64


class SinkImage(Message):
    """A sink and its last batch."""

    sink_id: str
    query_id: str
    batch_id: i64
    source_offsets: str
    entry: i64
    stamp_ms: i64


class StagedImage(Message):
    """An object that waits for its commit; its runs are packed as in memory."""

    object_id: i64
    sink_id: str
    query_id: str
    batch_id: i64
    parts: i32
    staged: i32
    until_ms: i64
    runs: Records


def sink_images(sinks: Sinks) -> list[SinkImage]:
    """Write the sinks."""
    return [SinkImage(sink_id=sink_id, **sink._asdict()) for sink_id, sink in sinks.by_id.items()]


def staged_images(sinks: Sinks) -> list[StagedImage]:
    """Write what is staged."""
    return [
        StagedImage(
            object_id=object_id,
            **staged_object.batch._asdict(),
            parts=staged_object.parts,
            staged=staged_object.staged,
            until_ms=staged_object.until_ms,
            runs=staged_object.packed,
        )
        for object_id, staged_object in sinks.staged.items()
    ]


def read_sinks(sinks: list[SinkImage], staged: list[StagedImage]) -> Sinks:
    """Read both.

    Raises:
        Corrupt: the runs of an object are not whole.
    """
    made = Sinks()
    for sink in sinks:
        made.by_id[sink.sink_id] = SinkState(
            sink.query_id, sink.batch_id, sink.source_offsets, sink.entry, sink.stamp_ms
        )
    for image in staged:
        staged_object = StagedObject(
            SinkBatch(image.sink_id, image.query_id, image.batch_id), image.parts, image.until_ms
        )
        staged_object.staged = image.staged
        staged_object.packed = bytes(image.runs)  # type: ignore[arg-type] # read as a view
        if len(staged_object.packed) % RUN.size:
            raise Corrupt("the snapshot has a staged object whose runs are not whole")
        made.add(image.object_id, staged_object)
    return made
