"""Checks the sources of the state: snapshots, and the entries of the cluster log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from rookery.cluster.entry import read_entry, read_events
from rookery.cluster.port import EntriesTrimmed
from rookery.cluster.state.images.image import read_image
from rookery.errors import Corrupt
from rookery.formats.keys import CLUSTER, SNAPSHOTS, parse_snapshot_key
from rookery.log.check.fault import FaultKind, LogFault
from rookery.log.check.progress import Progress
from rookery.log.check.sources import Sources
from rookery.log.lostlog import check_not_lost
from rookery.store.port import NotFound

_LOG = "cluster log"


class Snapshots(NamedTuple):
    """The entry of the newest readable snapshot, -1 if there is none, and faults of the others."""

    newest: int
    faults: list[LogFault]


async def check_snapshots(sources: Sources) -> Snapshots:
    """Read all snapshots."""
    newest, faults = -1, []
    for stored in await sources.store.list(SNAPSHOTS):
        number = parse_snapshot_key(stored.key)
        if number is None:
            continue  # it is reported among the stray keys
        try:
            state = read_image(await sources.store.read(stored.key))
        except NotFound:
            continue  # a newer one has replaced it meanwhile
        except Corrupt as error:
            faults.append(LogFault(FaultKind.SNAPSHOT, stored.key, str(error)))
            continue
        if state.applied != number:
            text = f"it stands after entry {state.applied}: it was copied or renamed"
            faults.append(LogFault(FaultKind.SNAPSHOT, stored.key, text))
            continue
        newest = max(newest, number)
    return Snapshots(newest, faults)


async def check_ends(sources: Sources, newest: int) -> list[LogFault]:
    """Check that the cluster log continues where the newest snapshot ends."""
    try:
        await check_not_lost(sources.cluster_log, sources.store)
    except Corrupt as error:
        advice = "stop the brokers and run `rookery recover`"
        return [LogFault(FaultKind.LOG, _LOG, str(error), remedy=advice)]
    floor = await sources.cluster_log.floor()
    if floor > max(newest, 0):
        text = f"entries up to {floor} were trimmed, and no snapshot that can be read holds them"
        return [LogFault(FaultKind.LOG, _LOG, text)]
    return []


async def check_entries(sources: Sources, progress: Progress) -> AsyncIterator[LogFault]:
    """Read all existing entries, including those before the snapshot, which are not applied."""
    log = sources.cluster_log
    after = await log.floor()
    while True:
        try:
            entries = await log.read(after)
        except EntriesTrimmed as trimmed:
            after = trimmed.floor  # a caretaker runs concurrently
            continue
        except Corrupt as error:
            yield LogFault(FaultKind.LOG, _LOG, str(error))
            return
        if not entries:
            return
        for number, data in entries:
            try:
                read_events(number, read_entry(number, data))
            except Corrupt as error:
                yield LogFault(FaultKind.LOG, f"entry {number}", str(error))
            after = number
        progress(sum(len(entry.data) for entry in entries), 0)


async def check_owner(sources: Sources, cluster_id: str) -> list[LogFault]:
    """Check that the store belongs to the cluster of this log."""
    try:
        owner = (await sources.store.read(CLUSTER)).decode(errors="replace")
    except NotFound:
        return []  # a cluster that is just being created
    if owner == cluster_id:
        return []
    text = f"the store is that of cluster {owner}, but the cluster log that of {cluster_id}"
    advice = "name the cluster log and the store that belong together; delete nothing"
    return [LogFault(FaultKind.LOG, CLUSTER, text, remedy=advice)]
