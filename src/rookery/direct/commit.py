"""Commits a sink's batch: one event assigns offsets to all of its objects, or to none.

The commit is also recorded in the store, as brokers do it (see `formats.manifest`). If the cluster
log is lost, it can be rebuilt with these offsets and with the sink's last position.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from rookery.cluster.events.logevents import ObjectsCondemned
from rookery.cluster.events.sinkevents import SinkCommitted, SinkForgotten
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.rules.sinkrules import (
    MAX_ID,
    MAX_OBJECTS,
    MAX_SOURCE_OFFSETS,
    SinkOutcome,
    SinkRange,
)
from rookery.cluster.state.sinks import SinkBatch, SinkState, StagedObject
from rookery.direct.log import DirectLog
from rookery.direct.rowstager import abort, propose
from rookery.errors import ApiError, ConfigError, Conflict, Error, ErrorCode, Gone
from rookery.formats.keys import object_key
from rookery.formats.manifest import EarlierObject, Manifest, ManifestSink, write_head

log = logging.getLogger(__name__)

_Runs = list[tuple[bytes, int, int]]
"""For one object: the topic id, partition and number of records of each run."""

_TAKE_OVER: Final = (
    "If the old query no longer writes, set takeOver=true for one run, then remove it; to "
    "write at the same time, choose another sinkId"
)


class Commit(NamedTuple):
    """The outcome of a commit."""

    is_repeated: bool
    """Whether the sink already had this batch; nothing was written then, which is correct."""
    ranges: tuple[SinkRange, ...]
    """The offsets that were assigned in each partition."""

    @property
    def records(self) -> int:
        """The number of offsets that were assigned."""
        return sum(range_.end_offset - range_.base_offset for range_ in self.ranges)


def check_batch(batch: SinkBatch) -> None:
    """Reject ids that cannot be stored.

    Raises:
        ConfigError: an id is too long, or the batch id is negative.
    """
    for name, value in (("sinkId", batch.sink_id), ("query id", batch.query_id)):
        if len(value) > MAX_ID:
            raise ConfigError(f"{name} {value[:40]!r}…: at most {MAX_ID} characters")
    if batch.batch_id < 0:
        raise ConfigError(f"batchId={batch.batch_id}: must not be negative")


async def commit(
    direct: DirectLog,
    batch: SinkBatch,
    object_ids: Sequence[int],
    *,
    source_offsets: str = "",
    takes_over: bool = False,
) -> Commit:
    """Commit staged objects, in this order; the call is idempotent.

    Args:
        direct: the log in which they are staged.
        batch: the batch for which they were staged.
        object_ids: the ids of all objects of the batch.
        source_offsets: the position of the batch's source; `last_commit` returns it.
        takes_over: allow this query to continue after another query, or to go back to an earlier
            batch.

    Raises:
        Conflict: the sink belongs to another query, or has already passed this batch.
        Gone: the objects were discarded, or their topic was deleted; nothing was committed.
        ConfigError: the batch exceeds the limits of a commit.
        Unavailable: the outcome of the commit is unknown: retry it.
    """
    check_batch(batch)
    _check_bounds(object_ids, source_offsets)
    state = await direct.barrier()
    staged = state.sinks.staged
    runs = {object_id: _runs(staged[object_id]) for object_id in object_ids if object_id in staged}
    event = SinkCommitted(
        **batch._asdict(),
        object_ids=list(object_ids),
        source_offsets=source_offsets,
        takes_over=takes_over,
    )
    [outcome] = await propose(direct, [event])
    if outcome.error is not ErrorCode.NONE:
        raise _make_refusal(batch, outcome)
    sink: SinkOutcome = outcome.value
    if sink.is_repeated:
        await abort(direct, object_ids)  # has no effect on objects that belong to this batch
        return Commit(is_repeated=True, ranges=())
    await _tell(direct, batch, object_ids, runs, sink)
    return Commit(is_repeated=False, ranges=sink.ranges)


async def last_commit(direct: DirectLog, sink_id: str) -> SinkState | None:
    """Return the last commit of a sink, with its source's offsets; None if there is none.

    Raises:
        Unavailable: the cluster log cannot be reached.
    """
    state = await direct.barrier()
    return state.sinks.by_id.get(sink_id)


async def forget(direct: DirectLog, sink_id: str) -> bool:
    """Reset a sink's id so that it can start again; return whether the sink existed.

    Raises:
        Unavailable: it is unknown whether the sink was reset.
    """
    [outcome] = await propose(direct, [SinkForgotten(sink_id=sink_id)])
    return outcome.error is ErrorCode.NONE


def _check_bounds(object_ids: Sequence[int], source_offsets: str) -> None:
    if len(object_ids) > MAX_OBJECTS:
        raise ConfigError(
            f"a batch of {len(object_ids)} objects: at most {MAX_OBJECTS}; make them larger "
            "(objectBytes), or the batch smaller"
        )
    if (size := len(source_offsets.encode())) > MAX_SOURCE_OFFSETS:
        raise ConfigError(f"source offsets of {size} bytes: at most {MAX_SOURCE_OFFSETS}")


def _make_refusal(batch: SinkBatch, outcome: Outcome) -> Conflict | ApiError:
    what = f"batch {batch.batch_id} of query {batch.query_id!r}"
    code, value = outcome
    if code is ErrorCode.PRODUCER_FENCED:
        query, last = value
        return Conflict(
            f"sink {batch.sink_id!r} is written by query {query!r} (up to its batch {last}), so "
            f"{what} is refused: another checkpoint, or a new one, would write rows again. "
            f"{_TAKE_OVER}"
        )
    if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        _, last = value
        return Conflict(
            f"sink {batch.sink_id!r} has batch {last} already, so {what} is refused: its "
            f"checkpoint was set back, or batchId is not the next one. {_TAKE_OVER}"
        )
    if code is ErrorCode.INVALID_TXN_STATE:
        return Gone(
            f"{what}: object {value} is not staged any more (another writer of the sink has "
            "committed, or too much time has passed), so nothing was committed: run it again"
        )
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Gone(
            f"{what}: a topic was deleted meanwhile, so nothing was committed: run it again"
        )
    if code is ErrorCode.POLICY_VIOLATION:
        return ApiError(code, f"sink {batch.sink_id!r}: the cluster has too many sinks")
    return ApiError(code, f"{what} cannot be committed: {code.name}")


# The commit's record in the store.


def _runs(staged: StagedObject) -> _Runs:
    return [(topic_id, index, records) for topic_id, index, _, _, records, _ in staged.runs()]


async def _tell(
    direct: DirectLog,
    batch: SinkBatch,
    object_ids: Sequence[int],
    runs: dict[int, _Runs],
    sink: SinkOutcome,
) -> None:
    """Record the assigned offsets in the store; only a rebuild of a lost cluster log needs them."""
    try:
        identity = (await direct.numbers())()
        manifest = Manifest(
            object_id=identity,
            created_ms=direct.clock.now_ms(),
            seen=direct.state.applied,
            topics=[],
            extents=[],
            earlier=_earlier(object_ids, runs, sink.ranges),
            sinks=_sinks(direct, batch),
        )
        await direct.store.create(object_key(identity), [write_head(manifest)])
        # The sweeper deletes this object once a snapshot contains all of it, and not earlier.
        await propose(direct, [ObjectsCondemned(object_ids=[identity])])
    except Error as error:
        log.warning("the offsets of %s are in the cluster log alone: %s", batch, error)


def _earlier(
    object_ids: Sequence[int], runs: dict[int, _Runs], ranges: Sequence[SinkRange]
) -> list[EarlierObject]:
    """Compute the base offset of every run: the runs of a partition are consecutive."""
    following = {range_[:2]: range_.base_offset for range_ in ranges}
    times = {range_[:2]: range_.append_time_ms for range_ in ranges}
    earlier = []
    for object_id in object_ids:
        bases, appended = [], []
        for topic_id, index, records in runs.get(object_id, ()):
            bases.append(following[topic_id, index])
            appended.append(times[topic_id, index])
            following[topic_id, index] += records
        earlier.append(
            EarlierObject(object_id=object_id, base_offsets=bases, append_times=appended)
        )
    return earlier


def _sinks(direct: DirectLog, batch: SinkBatch) -> list[ManifestSink]:
    sink = direct.state.sinks.by_id.get(batch.sink_id)
    if sink is None:
        return []
    return [ManifestSink(sink_id=batch.sink_id, **sink._asdict())]
