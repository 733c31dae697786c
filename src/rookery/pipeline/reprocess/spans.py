"""The source records of silver: those read by a backfill and those read by the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rookery.errors import Conflict
from rookery.pipeline.batch.engine import BatchEngine
from rookery.pipeline.manifests import Offsets, PipelinePosition
from rookery.pipeline.positions import check_same

_SHOWN: Final = 5


class BatchSpan(NamedTuple):
    """The records of one chain of batches."""

    begin: PipelinePosition
    until: PipelinePosition


def begins_in(there: PipelinePosition, span: BatchSpan) -> Offsets:
    """Return the start of a span in the current log.

    A topic that was deleted and created again was read from its first record. So were partitions
    that were added later.
    """
    begins = {}
    for topic, firsts in there.ends.items():
        known = span.begin.ends.get(topic, {}) if _is_same(topic, span.begin, there) else {}
        begins[topic] = {
            partition: max(first, known.get(partition, 0)) for partition, first in firsts.items()
        }
    return begins


def still_read(reached: PipelinePosition, span: BatchSpan) -> PipelinePosition:
    """Return the end of a span, without topics that were since created again."""
    until = span.until
    same = [topic for topic in until.ends if _is_same(topic, until, reached)]
    topics = {topic: until.topics[topic] for topic in same if topic in until.topics}
    return PipelinePosition({topic: until.ends[topic] for topic in same}, topics)


def _is_same(topic: str, left: PipelinePosition, right: PipelinePosition) -> bool:
    ids = {each.topics[topic] for each in (left, right) if topic in each.topics}
    return len(ids) < 2


def check_whole(live: BatchEngine, spans: Sequence[BatchSpan], there: PipelinePosition) -> None:
    """Check that the log still has all source records of the silver tables.

    Raises:
        Conflict: records are missing, and `on-data-loss` is not `skip`.
    """
    pipeline = live.pipeline
    if pipeline.source.on_data_loss == "skip":
        return
    what = f"pipeline {pipeline.name!r}: rebuild"
    for span in spans:
        check_same(pipeline.source, span.begin.topics, what)
    gone = [
        f"{topic}-{partition} offsets {known} to {begin - 1}"
        for topic, begins in there.ends.items()
        for partition, begin in begins.items()
        if begin > (known := _first(spans, topic, partition, begin))
    ]
    gone += sorted(f"topic {end}" for end in live.ends() if end not in pipeline.source.topics)
    if gone:
        raise Conflict(
            f"{what}: {', '.join(gone[:_SHOWN])}{' and more' if len(gone) > _SHOWN else ''} can no"
            " longer be read, or are no longer declared: their rows would be lost from silver."
            ' To accept that, set on-data-loss = "skip"'
        )


def _first(spans: Sequence[BatchSpan], topic: str, partition: str, otherwise: int) -> int:
    """Return the first offset of a partition that was read."""
    places = [
        [position.ends.get(topic, {}).get(partition, 0) for position in (span.begin, span.until)]
        for span in spans
    ]
    return min((begin for begin, end in places if end > begin), default=otherwise)
