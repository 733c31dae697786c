"""The recovery: survey the store, rebuild the state, start a new cluster log after it.

    survey ──► rebuild ──► replay ──► plan ──► unplaced objects are set aside
                                                ──► snapshot ──► the empty log begins after it

The snapshot is durable before the log starts. If the recovery is interrupted in between, the log is
still empty, and the recovery can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from rookery.clock import Clock, Random
from rookery.cluster.entry import MAX_EVENTS
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.member import ClusterMember, process_registration
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import AppendOutcome
from rookery.errors import Conflict, Corrupt, ErrorCode
from rookery.log.check.fault import LogFault
from rookery.log.check.progress import Progress
from rookery.log.check.sources import Sources
from rookery.log.maintain import snapshots
from rookery.log.recover.leftovers import Leftover, journal_leftovers, set_aside
from rookery.log.recover.rebuild import RebuiltState, UnplacedObject, lead_anew, rebuild
from rookery.log.recover.replay import StateReplay
from rookery.log.recover.survey import SharedObject, StoreSurvey, survey
from rookery.log.recover.transactions import abort_open


@dataclass(slots=True)
class RecoveryPlan:
    """The result that a recovery would have, and the losses."""

    rebuilt: RebuiltState
    snapshot: int
    """The entry of the snapshot that it starts from; -1 if there is none."""
    faults: list[LogFault]
    objects: dict[int, SharedObject]
    """The unplaced objects."""
    leftovers: list[Leftover] = field(default_factory=list)
    """Journal files with batches whose offsets are not recorded anywhere."""

    @property
    def unplaced(self) -> list[UnplacedObject]:
        """Objects with batches whose offsets are not recorded anywhere."""
        return self.rebuilt.unplaced


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """The result of appending an unplaced object."""

    object_id: int
    appended: int
    """Records that have offsets now."""
    refused: int
    """Records that were duplicates or whose topic was deleted."""


async def check_lost(sources: Sources) -> None:
    """Reject a cluster log that is not lost.

    Raises:
        Conflict: the cluster log has entries.
    """
    try:
        head = await sources.cluster_log.head()
    except Corrupt as error:
        raise Conflict(
            f"{error}. If it cannot be restored, remove the whole rest of the cluster log, "
            "and run this again"
        ) from error
    if head:
        raise Conflict(
            f"the cluster log is not lost: it has entries up to {head}; run `rookery fsck`"
        )


async def plan(
    sources: Sources, clock: Clock, progress: Progress = lambda *_: None
) -> RecoveryPlan:
    """Determine what can be rebuilt, without writing anything.

    Raises:
        Unavailable: the store or the disk cannot be reached.
    """
    findings = await survey(sources, progress)
    start = findings.snapshot.applied if findings.snapshot is not None else -1
    leftovers = await journal_leftovers(sources, findings, progress)
    rebuilt = rebuild(findings, sources.namespace)
    faults = await StateReplay(sources, rebuilt, clock.now_ms(), progress).run()
    faults += abort_open(rebuilt.state, clock.now_ms())
    lead_anew(rebuilt.state)
    return RecoveryPlan(
        rebuilt, start, [*findings.faults, *faults], _select_unplaced(findings, rebuilt), leftovers
    )


async def carry_out(sources: Sources, made: RecoveryPlan, *, keep_unplaced: bool) -> None:
    """Write the snapshot, and start the empty log after it.

    Args:
        sources: the store, and the log that was lost.
        made: the plan to write.
        keep_unplaced: set aside objects whose offsets are not known, because the caretaker would
            sweep them. This is not necessary if they are appended next.

    Raises:
        Conflict: the log has entries by now; nothing was written that takes effect.
    """
    objects = [
        unplaced.object_id for unplaced in made.unplaced if keep_unplaced or unplaced.staged_for
    ]
    await set_aside(sources, objects, made.leftovers)
    await snapshots.save(sources.store, made.rebuilt.state)
    await sources.cluster_log.begin_after(made.rebuilt.number)


async def append_unplaced(
    sources: Sources, made: RecoveryPlan, clock: Clock, random: Random
) -> list[PlacedObject]:
    """Commit the unplaced objects in the order of their ids: their batches get new offsets.

    Duplicates are detected by their producers' sequences as usual.
    """
    store = sources.store
    replica = Replica(sources.cluster_log, clock, partial(snapshots.load, store))
    member = ClusterMember(replica, clock, process_registration("recover", random))
    try:
        await replica.open(follow=False)
        await member.join()
        placed = [
            await _append(replica, unplaced.object_id, made.objects[unplaced.object_id])
            for unplaced in made.unplaced
            if not unplaced.staged_for  # its writer repeats the batch if it was not committed
        ]
        await member.leave()
    finally:
        await member.close()
        await replica.close()
    return placed


async def _append(replica: Replica, object_id: int, headed: SharedObject) -> PlacedObject:
    extents = _extents(headed)
    appended = refused = 0
    for start in range(0, len(extents), MAX_EVENTS):
        some = extents[start : start + MAX_EVENTS]
        [outcome] = await replica.propose([BatchesCommitted(object_id=object_id, extents=some)])
        verdicts: list[AppendOutcome] = outcome.value
        for extent, verdict in zip(some, verdicts, strict=True):
            if verdict.error is ErrorCode.NONE and not verdict.is_duplicate:
                appended += extent.records
            else:
                refused += extent.records
    return PlacedObject(object_id, appended, refused)


def _extents(headed: SharedObject) -> list[Extent]:
    manifest, position = headed.manifest, headed.begin
    extents = []
    for extent in manifest.extents:
        if extent.base_offset < 0 and extent.topic < len(manifest.topics):
            extents.append(
                Extent(
                    topic_id=manifest.topics[extent.topic].topic_id,
                    partition=extent.partition,
                    position=position,
                    size=extent.size,
                    records=extent.records,
                    attributes=extent.attributes,
                    max_timestamp=extent.max_timestamp,
                    producer_id=extent.producer_id,
                    producer_epoch=extent.producer_epoch,
                    base_sequence=extent.base_sequence,
                )
            )
        position += extent.size
    return extents


def _select_unplaced(findings: StoreSurvey, rebuilt: RebuiltState) -> dict[int, SharedObject]:
    return {
        unplaced.object_id: findings.objects[unplaced.object_id] for unplaced in rebuilt.unplaced
    }
