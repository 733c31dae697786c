"""Where a pipeline is in its topics: offsets by name, as manifests keep them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from rookery.direct import blocking, grouped
from rookery.direct.blocking import BlockingLog
from rookery.direct.offsets import LATEST, Position, Subject, Subscription, end_of
from rookery.errors import ApiError
from rookery.pipeline.manifests import Offsets
from rookery.pipeline.spec import Source
from rookery.spark.offset import StreamOffset

log = logging.getLogger(__name__)


def starts(source: Source) -> Offsets:
    """Return the offsets at which a new pipeline begins, as they are now."""
    position = Position() if source.starting_offsets == "earliest" else Position(offset=LATEST)
    opened, subjects = _look(source)
    found = opened.run(position.resolve(opened.log, subjects, is_committed=True))
    return _named((one, found[_key(one)]) for one in subjects)


def complete(source: Source, ends: Offsets) -> Offsets:
    """Add partitions that came to be since: they are read from their beginning."""
    _, subjects = _look(source)
    return _named((one, _next(one, ends)) for one in subjects)


def lag(source: Source, ends: Offsets) -> dict[str, int]:
    """Return how many records each partition has that were not read yet."""
    _, subjects = _look(source)
    return {
        one.name: max(0, end_of(one.partition, is_committed=True) - _next(one, ends))
        for one in subjects
    }


def planned_ends(source: Source, ends: Offsets, checkpoint: Path, number: int) -> Offsets:
    """Return where a batch ends, as Spark wrote it down before it began.

    Its rows do not tell: behind the last of them there may be the ends of transactions.
    """
    text = (checkpoint / "offsets" / str(number)).read_text()
    offset = StreamOffset.of(json.loads(text.splitlines()[-1]))
    _, subjects = _look(source)
    return _named((one, offset.next.get(_key(one), _next(one, ends))) for one in subjects)


def publish(source: Source, ends: Offsets) -> None:
    """Tell a group's offsets, if one is named, so that tools show the pipeline's lag."""
    if not source.group_id:
        return
    opened, subjects = _look(source)
    offsets = {_key(one): _next(one, ends) for one in subjects}
    try:
        opened.run(grouped.publish(opened.log, source.group_id, offsets))
    except ApiError as error:
        # The tables are right all the same: no reason to stop.
        log.warning("%s", error)


def _look(source: Source) -> tuple[BlockingLog, list[Subject]]:
    opened = blocking.shared(source.place())
    state = opened.run(opened.log.barrier())
    return opened, Subscription(source.topics).find(state)


def _key(subject: Subject) -> tuple[bytes, int]:
    return subject.topic.id, subject.partition.index


def _next(subject: Subject, ends: Offsets) -> int:
    known = ends.get(subject.topic.name, {})
    return known.get(str(subject.partition.index), subject.partition.log_start)


def _named(offsets: Iterable[tuple[Subject, int]]) -> dict[str, dict[str, int]]:
    named: dict[str, dict[str, int]] = {}
    for subject, offset in offsets:
        named.setdefault(subject.topic.name, {})[str(subject.partition.index)] = offset
    return named
