"""The position of a pipeline in its topics: offsets by topic name, as stored in manifests.

Topic names are for readers; offsets belong to a topic id. A topic that is deleted and created again
has the same name but a new id. Continuing at the old offsets would skip its first records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from rookery.direct import blockinglog
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.offsets import LATEST, DirectSubscription, Position, SubscribedPartition, end_of
from rookery.errors import Conflict
from rookery.model.uuid import parse_uuid_text, uuid_text
from rookery.pipeline.declaration.spec import Source
from rookery.pipeline.manifests import Ids, PipelinePosition
from rookery.spark.read.offset import StreamOffset

log = logging.getLogger(__name__)


def starts(source: Source) -> PipelinePosition:
    """Return the current start position of a new pipeline."""
    position = Position() if source.starting_offsets == "earliest" else Position(offset=LATEST)
    opened, subjects = _look(source)
    ends = opened.run(position.resolve(opened.log, subjects, is_committed=True))
    names = {subject.topic.id: subject.topic.name for subject in subjects}
    return _name_topics(names, ends)


def next_batch(source: Source, reached: PipelinePosition) -> StreamOffset:
    """Return the offset at which the source continues; new partitions start at their log start.

    Raises:
        Conflict: a topic was created again, and `on-data-loss` is `fail`.
    """
    _, subjects = _look(source)
    if replaced := _find_replaced(subjects, reached.topics):
        words = (
            f"{_list_topics(replaced)} deleted and created again since the pipeline's last batch"
        )
        if source.on_data_loss == "fail":
            raise Conflict(
                f"{words}: what it had not read of the old is lost. To let it read the new from the"
                ' beginning, set on-data-loss = "skip" for one run'
            )
        log.warning("%s: the new is read from its beginning", words)
    return StreamOffset.beginning(
        {
            (subject.topic.id, subject.partition.index): _next(subject, reached)
            for subject in subjects
        }
    )


def check_same(source: Source, topics: Ids, what: str) -> None:
    """Check that all topics still have the same ids.

    Raises:
        Conflict: a topic was created again, so the records to read no longer exist.
    """
    _, subjects = _look(source)
    if replaced := _find_replaced(subjects, topics):
        raise Conflict(
            f"{what}: {_list_topics(replaced)} deleted and created again; the old records are lost"
        )


def lag(source: Source, reached: PipelinePosition, *, is_strict: bool = True) -> dict[str, int]:
    """Return the number of unread records in each partition.

    Raises:
        ConfigError: a topic does not exist, and `is_strict` is set.
    """
    _, subjects = _look(source, is_strict=is_strict)
    return {
        subject.name: max(0, end_of(subject.partition, is_committed=True) - _next(subject, reached))
        for subject in subjects
    }


def batch_end(
    names: Mapping[bytes, str], before: PipelinePosition, offset: StreamOffset
) -> PipelinePosition:
    """Return the end of a batch.

    Its rows do not determine the end, because control records can follow the last row. The position
    of a topic that is no longer declared is kept, because it may be declared again.

    Args:
        names: topic names by id.
        before: the start of the batch; only this has the names of deleted topics.
        offset: the end that the source reports.
    """
    known = {parse_uuid_text(topic_id): name for name, topic_id in before.topics.items()}
    ends, topics = _name_topics({**known, **names}, offset.next)
    return PipelinePosition({**before.ends, **ends}, {**before.topics, **topics})


def _look(
    source: Source, *, is_strict: bool = True
) -> tuple[BlockingLog, list[SubscribedPartition]]:
    opened = blockinglog.open_shared(source.place())
    state = opened.run(opened.log.barrier())
    return opened, DirectSubscription(source.topics).find(state, is_strict=is_strict)


def _find_replaced(subjects: Iterable[SubscribedPartition], topics: Ids) -> list[str]:
    """Return the names of topics whose id has changed."""
    current = {subject.topic.name: uuid_text(subject.topic.id) for subject in subjects}
    return sorted(name for name, known in topics.items() if current.get(name, known) != known)


def _list_topics(names: list[str]) -> str:
    return f"topic {names[0]} was" if len(names) == 1 else f"topics {', '.join(names)} were"


def _next(subject: SubscribedPartition, reached: PipelinePosition) -> int:
    topic, partition = subject
    beginning = partition.log_start
    if reached.topics.get(topic.name, uuid_text(topic.id)) != uuid_text(topic.id):
        return beginning
    return reached.ends.get(topic.name, {}).get(str(partition.index), beginning)


def _name_topics(
    names: Mapping[bytes, str], offsets: Mapping[tuple[bytes, int], int]
) -> PipelinePosition:
    ends: dict[str, dict[str, int]] = {}
    topics: dict[str, str] = {}
    for (topic, partition), offset in offsets.items():
        if topic not in names:
            continue  # The topic was created and deleted within a batch.
        ends.setdefault(names[topic], {})[str(partition)] = offset
        topics[names[topic]] = uuid_text(topic)
    return PipelinePosition(ends, topics)
