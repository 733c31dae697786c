"""Finds objects and files that nothing references, from listings alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rookery.cluster.state.state import State
from rookery.formats.keys import (
    CLUSTER,
    NEWEST_SNAPSHOT,
    is_stored,
    journal_name,
    parse_object_key,
    parse_segment_key,
    parse_snapshot_key,
    split_object_id,
)
from rookery.log.check.fault import FaultKind, FaultRange, LogFault
from rookery.log.read.objects import keys_of
from rookery.store.probe import PROBES

UNPLACED: Final = "_rookery/unplaced/"
"""Where `rookery recover` keeps objects whose offsets it does not know."""

# The cluster log may be in the same store: entries, and the floor of the trim.
_ENTRY: Final = re.compile(r"_rookery/log/([0-9]{20}|floor)")


class UnnamedObject(NamedTuple):
    """An unreferenced object, its id if the key contains one, and the fault to report."""

    object_id: int
    fault: LogFault


def find_unnamed_keys(state: State, namespace: str, keys: Iterable[str]) -> Iterator[UnnamedObject]:
    """Find objects in the store that no row, stage or condemnation references."""
    segments = {
        key for segment in state.objects.segments for key in keys_of(state, namespace, segment)
    }
    for key in keys:
        object_id = parse_object_key(key)
        if object_id is not None:
            if not _is_known(state, object_id):
                yield UnnamedObject(object_id, _make_fault(state, key, object_id))
        elif key not in segments and not _is_expected(key):
            yield UnnamedObject(0, _foreign(key))


def find_unnamed_journals(state: State, journals: Iterable[int]) -> Iterator[UnnamedObject]:
    """Find journal files that no row references."""
    for object_id in journals:
        if not _is_known(state, object_id):
            yield UnnamedObject(object_id, _make_fault(state, journal_name(object_id), object_id))


def _is_known(state: State, object_id: int) -> bool:
    return object_id in state.objects.rows or object_id in state.objects.condemned


def _is_expected(key: str) -> bool:
    is_entry = _ENTRY.fullmatch(key) is not None
    # A running probe, or the remains of a killed one, which the sweeper removes.
    is_small = key in (CLUSTER, NEWEST_SNAPSHOT) or key.startswith(PROBES)
    return is_entry or is_small or parse_snapshot_key(key) is not None


def _make_fault(state: State, key: str, object_id: int) -> LogFault:
    incarnation, _ = split_object_id(object_id)
    if incarnation in state.brokers.sequences:
        # A live writer's newest journal is empty until its first commit. An object is referenced
        # only after it was written.
        return LogFault(FaultKind.IN_FLIGHT, key, f"of process {incarnation}, which lives")
    what = "object" if is_stored(object_id) else "journal"
    text = f"an {what}" if what == "object" else f"a {what}"
    return LogFault(FaultKind.ORPHANED, key, f"{text} of process {incarnation}, which is gone")


def _foreign(key: str) -> LogFault:
    """Distinguish an unreferenced segment from a foreign key."""
    parsed = parse_segment_key(key)
    if parsed is not None:
        where = FaultRange(parsed.topic, parsed.partition, parsed.base_offset, parsed.base_offset)
        text = "a segment that the cluster log does not know"
        advice = "remove it with its .kfs, .index and .times if the topic has what it holds"
        return LogFault(FaultKind.ORPHANED, key, text, where, advice)
    if key.startswith(UNPLACED):
        text = "batches whose offsets were not known when the cluster log was rebuilt"
        advice = "look at it, then remove it: nothing reads it any more"
        return LogFault(FaultKind.ORPHANED, key, text, remedy=advice)
    return LogFault(FaultKind.STRAY, key, "nothing of Rookery's is called so")
