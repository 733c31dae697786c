"""The report of `rookery recover`, as text or as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rookery.cli.output.faults import fault_text
from rookery.log.check.fault import Where
from rookery.log.recover.recover import PlacedObject, RecoveryPlan


def as_json(made: RecoveryPlan, placed: list[PlacedObject], *, is_dry: bool) -> dict[str, object]:
    """Return it for scripts."""
    rebuilt = made.rebuilt
    ends = {one.object_id: one for one in placed}
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
                "key": one.key,
                "records": one.records,
                "parts": [
                    {"topic": part.topic, "partition": part.partition, "records": part.end_offset}
                    for part in one.parts
                ],
                "appended": ends[one.object_id].appended if one.object_id in ends else 0,
            }
            for one in made.unplaced
        ],
        "journals": [one._asdict() for one in made.leftovers],
        "faults": [fault.as_json() for fault in made.faults],
    }


def as_text(made: RecoveryPlan, placed: list[PlacedObject], *, is_dry: bool) -> Iterator[str]:
    """Tell what was rebuilt, and what was not."""
    for fault in made.faults:
        yield from fault_text(fault)
    yield from _found(made)
    yield from _lost(made.rebuilt.lost)
    yield from _unplaced(made, placed, is_dry=is_dry)
    if is_dry:
        yield "nothing was written: run it again with --yes and without --dry-run"
    else:
        yield f"the cluster log is rebuilt, and begins after entry {made.rebuilt.number}"
        yield "run `rookery fsck`, then start the brokers"


def _found(made: RecoveryPlan) -> Iterator[str]:
    rebuilt = made.rebuilt
    topics = rebuilt.state.topics
    partitions = [partition for topic in topics for partition in topic.partitions]
    offsets = sum(one.next_offset - one.log_start for one in partitions)
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


def _lost(lost: list[Where]) -> Iterator[str]:
    for topic, partition, base, end in lost:
        yield (
            f"lost       topic {topic}, partition {partition}, offsets {base} to {end - 1}: their "
            "bytes are nowhere; readers pass over them"
        )


def _unplaced(made: RecoveryPlan, placed: list[PlacedObject], *, is_dry: bool) -> Iterator[str]:
    ends = {one.object_id: one for one in placed}
    for one in made.unplaced:
        parts = ", ".join(f"{part.topic}-{part.partition}: {part.end_offset}" for part in one.parts)
        yield f"unplaced   {one.key}: {one.records:,} records without offsets ({parts})"
        if one.staged_for:
            yield (
                f"           → written for {one.staged_for}, which writes them again if they were "
                "not committed; they are set aside"
            )
        if one.object_id in ends:
            end = ends[one.object_id]
            again = f"; {end.refused:,} were there already" if end.refused else ""
            yield f"           → {end.appended:,} were appended with new offsets{again}"
    for journal in made.leftovers:
        yield (
            f"unplaced   {journal.name}: {journal.records:,} records at most came after the "
            "snapshot, and nothing tells whose they are"
        )
    if is_dry and made.unplaced:
        yield "           → set aside (under unplaced/), or appended by --append-unplaced"
    elif made.unplaced and not placed:
        yield "           → set aside (under unplaced/), where nothing sweeps them"
    if made.leftovers and not is_dry:
        yield "           → journal files are kept in the folder journal/unplaced"
