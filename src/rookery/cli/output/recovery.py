"""The report of `rookery recover`, as text or as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rookery.cli.output.faults import fault_text
from rookery.log.check.fault import FaultRange
from rookery.log.recover.recover import PlacedObject, RecoveryPlan


def as_json(made: RecoveryPlan, placed: list[PlacedObject], *, is_dry: bool) -> dict[str, object]:
    """Return it for scripts."""
    rebuilt = made.rebuilt
    ends = {end.object_id: end for end in placed}
    return {
        "written": not is_dry,
        "snapshot": made.snapshot,
        "begins_after": rebuilt.number,
        "topics": len(rebuilt.state.topics.by_id),
        "partitions": sum(len(topic.partitions) for topic in rebuilt.state.topics),
        "topics_without_configs": rebuilt.catalog.added,
        "topics_dropped": rebuilt.catalog.dropped,
        "lost": [where._asdict() for where in rebuilt.lost],
        "unplaced": [
            {
                "key": unplaced.key,
                "records": unplaced.records,
                "parts": [
                    {"topic": part.topic, "partition": part.partition, "records": part.end_offset}
                    for part in unplaced.parts
                ],
                "appended": ends[unplaced.object_id].appended if unplaced.object_id in ends else 0,
            }
            for unplaced in made.unplaced
        ],
        "journals": [leftover._asdict() for leftover in made.leftovers],
        "faults": [fault.as_json() for fault in made.faults],
    }


def as_text(made: RecoveryPlan, placed: list[PlacedObject], *, is_dry: bool) -> Iterator[str]:
    """Describe what was rebuilt, and what was not."""
    for fault in made.faults:
        yield from fault_text(fault)
    yield from _describe_rebuilt(made)
    yield from _describe_lost(made.rebuilt.lost)
    yield from _describe_unplaced(made, placed, is_dry=is_dry)
    if is_dry:
        yield "nothing was written: run it again with --yes and without --dry-run"
    else:
        yield f"the cluster log is rebuilt, and begins after entry {made.rebuilt.number}"
        yield "run `rookery fsck`, then start the brokers"


def _describe_rebuilt(made: RecoveryPlan) -> Iterator[str]:
    rebuilt = made.rebuilt
    topics = rebuilt.state.topics
    partitions = [partition for topic in topics for partition in topic.partitions]
    offsets = sum(partition.next_offset - partition.log_start for partition in partitions)
    begin = f"entry {made.snapshot}" if made.snapshot >= 0 else "nothing: there is no snapshot"
    yield f"snapshot   {begin}"
    yield f"topics     {len(topics.by_id):,}, {len(partitions):,} partitions, {offsets:,} offsets"
    if rebuilt.catalog.added:
        yield (
            f"new        {', '.join(rebuilt.catalog.added)}: not in the snapshot, so their configs "
            "are not known; set them with `rookery topics alter`"
        )
    if rebuilt.catalog.dropped:
        yield f"replaced   {', '.join(rebuilt.catalog.dropped)}: a newer topic has the name"


def _describe_lost(lost: list[FaultRange]) -> Iterator[str]:
    for topic, partition, base, end in lost:
        yield (
            f"lost       topic {topic}, partition {partition}, offsets {base} to {end - 1}: their "
            "bytes are nowhere; readers pass over them"
        )


def _describe_unplaced(
    made: RecoveryPlan, placed: list[PlacedObject], *, is_dry: bool
) -> Iterator[str]:
    ends = {end.object_id: end for end in placed}
    for unplaced in made.unplaced:
        parts = ", ".join(
            f"{part.topic}-{part.partition}: {part.end_offset}" for part in unplaced.parts
        )
        yield f"unplaced   {unplaced.key}: {unplaced.records:,} records without offsets ({parts})"
        if unplaced.staged_for:
            yield (
                f"           → written for {unplaced.staged_for}, which writes them again if they "
                "were not committed; they are set aside"
            )
        if unplaced.object_id in ends:
            end = ends[unplaced.object_id]
            again = f"; {end.refused:,} were already present" if end.refused else ""
            yield f"           → {end.appended:,} were appended with new offsets{again}"
    for journal in made.leftovers:
        yield (
            f"unplaced   {journal.name}: {journal.records:,} records at most were written after "
            "the snapshot; their partitions are not recorded"
        )
    if is_dry and made.unplaced:
        yield "           → set aside (under unplaced/), or appended by --append-unplaced"
    elif made.unplaced and not placed:
        yield "           → set aside (under unplaced/), where nothing sweeps them"
    if made.leftovers and not is_dry:
        yield "           → journal files are kept in the folder journal/unplaced"
