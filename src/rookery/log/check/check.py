"""The complete check, which also works while brokers run.

    state ──► list of the store ──► barrier ──► rows and objects ──► suspects
                                                                        │
              named as faults ◄── the same twice in a row ◄── barrier, checked again

The listing is made before the state that it is compared with, so the state includes everything
committed meanwhile. A row that seems damaged may have been moved, so it is checked again in a newer
state.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from rookery.clock import SystemClock
from rookery.cluster.replica import Replica
from rookery.errors import Corrupt
from rookery.formats.keys import OBJECTS, journal_name, parse_object_key
from rookery.formats.manifest import HEAD_BYTES, manifest_length, read_head
from rookery.log.check.fault import FaultKind, LogFault
from rookery.log.check.history import check_ends, check_entries, check_owner, check_snapshots
from rookery.log.check.objects import ObjectCheck, Suspect
from rookery.log.check.offsets import check_state
from rookery.log.check.progress import CheckReport, Progress
from rookery.log.check.rows import RowTable
from rookery.log.check.sources import Sources
from rookery.log.check.unnamedobjects import UnnamedObject, find_unnamed_journals, find_unnamed_keys
from rookery.log.maintain import snapshots
from rookery.store.port import NotFound, ReadableStore

_ROUNDS: Final = 5
_OURS: Final = "_rookery/"


async def check(
    sources: Sources, *, is_quick: bool = False, progress: Progress = lambda *_: None
) -> CheckReport:
    """Check everything without changing anything.

    Args:
        sources: the handles to read from.
        is_quick: check only names and sizes.
        progress: receives the number of bytes checked and of sound records in them.

    Raises:
        Unavailable: the cluster log, the store or the disk cannot be reached.
    """
    return await _Check(sources, progress, is_quick=is_quick).run()


class _Check:
    """One run of the check."""

    def __init__(self, sources: Sources, progress: Progress, *, is_quick: bool) -> None:
        self._sources = sources
        self._progress = progress
        self._is_quick = is_quick
        self._report = CheckReport()
        store = sources.store
        self._replica = Replica(sources.cluster_log, SystemClock(), partial(snapshots.load, store))

    async def run(self) -> CheckReport:
        snapshot_check = await check_snapshots(self._sources)
        self._report.add(snapshot_check.faults)
        try:
            self._report.add(await check_ends(self._sources, snapshot_check.newest))
            if self._report.faults and self._report.faults[-1].kind is FaultKind.LOG:
                return self._report  # there is no state to check anything against
            await self._replica.open(follow=False)
            owner = await check_owner(self._sources, self._replica.state.cluster_id)
            self._report.add(owner)
            if not owner:
                await self._check_all()
        except Corrupt as error:
            self._report.add([LogFault(FaultKind.LOG, "cluster log", str(error))])
        finally:
            await self._replica.close()
        return self._report

    async def _check_all(self) -> None:
        sizes, journals = await self._list()
        await self._replica.barrier()
        state = self._replica.state
        rows = RowTable.of(state)
        self._count(rows)
        unnamed = [
            *find_unnamed_keys(state, self._sources.namespace, sizes),
            *find_unnamed_journals(state, journals),
        ]
        sizes |= {journal_name(journal): size for journal, size in journals.items()}
        suspects = await self._check_rows(rows, sizes)
        del rows
        faults = await self._confirm(suspects)
        self._report.add(list(check_state(self._replica.state)))
        self._report.add(faults)
        self._report.add(await self._still_unnamed(unnamed))
        if not self._is_quick:
            async for fault in check_entries(self._sources, self._progress):
                self._report.add([fault])

    async def _list(self) -> tuple[dict[str, int], dict[int, int]]:
        """Return the sizes of all objects by their keys, and of journal files by their ids."""
        store, files = self._sources.store, self._sources.files
        listed = [
            *await store.list(_OURS),
            *await store.list(f"{self._sources.namespace}/"),
        ]
        journals = await files.find() if files else []
        return dict(listed), dict(journals)

    def _count(self, rows: RowTable) -> None:
        state, report = self._replica.state, self._report
        report.entry = state.applied
        report.topics = len(state.topics.by_id)
        partitions = [partition for topic in state.topics for partition in topic.partitions]
        report.partitions = len(partitions)
        report.bytes = sum(partition.size_bytes for partition in partitions)
        report.objects = len(rows.objects)
        report.rows = rows.count()

    async def _check_rows(self, rows: RowTable, sizes: dict[str, int]) -> list[Suspect]:
        state = self._replica.state
        checking = ObjectCheck(
            self._sources, state, rows, sizes, self._progress, is_quick=self._is_quick
        )
        return await checking.run()

    async def _confirm(self, suspects: list[Suspect]) -> list[LogFault]:
        """Check suspects again in newer states, until their rows are no longer moved."""
        faults: list[LogFault] = []
        for _ in range(_ROUNDS):
            if not suspects:
                break
            before = {suspect[1:] for suspect in suspects}
            await self._replica.barrier()
            rows = RowTable.within(self._replica.state, {suspect.span for suspect in suspects})
            again = await self._check_rows(rows, {})
            faults += [suspect.fault for suspect in again if suspect[1:] in before]
            suspects = [suspect for suspect in again if suspect[1:] not in before]
        return sorted({*faults, *(suspect.fault for suspect in suspects)}, key=_order)

    async def _still_unnamed(self, unnamed: list[UnnamedObject]) -> list[LogFault]:
        """Exclude objects that were committed or deleted since."""
        objects = self._replica.state.objects
        faults, without_batches = [], 0
        for object_id, fault in unnamed:
            if object_id in objects.rows or object_id in objects.condemned:
                continue
            if not await self._is_there(object_id, fault):
                continue
            extents = await _count_extents(self._sources.store, fault.key)
            if extents == 0:
                without_batches += 1
                continue
            text = f"{fault.text}; it holds {extents} batches" if extents else fault.text
            faults.append(replace(fault, text=text))
        if without_batches:
            text = f"{without_batches:,} objects only record the offsets of earlier objects"
            faults.append(LogFault(FaultKind.RECORD, OBJECTS, text))
        return faults

    async def _is_there(self, object_id: int, fault: LogFault) -> bool:
        if object_id and fault.key == journal_name(object_id):
            files = self._sources.files
            return files is not None and object_id in dict(await files.find())
        return await self._sources.store.size(fault.key) is not None


async def _count_extents(store: ReadableStore, key: str) -> int | None:
    """Return the number of batches in a shared object; None if it is not one or unreadable."""
    if parse_object_key(key) is None:
        return None
    try:
        length = manifest_length(await store.read(key, 0, HEAD_BYTES))
        manifest, _ = read_head(await store.read(key, 0, length))
    except (Corrupt, NotFound):
        return None
    return len(manifest.extents)


def _order(fault: LogFault) -> tuple[str, str, str, tuple[object, ...]]:
    # The text comes before the offsets, so that adjacent ranges with the same fault are joined.
    return fault.key, fault.kind, fault.text, tuple(fault.where or ())
