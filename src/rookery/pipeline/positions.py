"""Where a pipeline is in its topics: offsets by name, as manifests keep them."""

from __future__ import annotations

from collections.abc import Iterable

from rookery.direct import blocking
from rookery.direct.blocking import BlockingLog
from rookery.direct.offsets import LATEST, Position, Subject, Subscription, end_of
from rookery.pipeline.manifests import Offsets
from rookery.pipeline.spec import Source
from rookery.spark.offset import StreamOffset


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


def named_ends(source: Source, ends: Offsets, offset: StreamOffset) -> Offsets:
    """Return where a batch ends that begins at `ends`, by the names of its topics.

    Its rows do not tell: behind the last of them there may be the ends of transactions.
    """
    _, subjects = _look(source)
    return _named((one, offset.next.get(_key(one), _next(one, ends))) for one in subjects)


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
