"""Old snapshots of an Iceberg table: forgotten, and then what only they needed is deleted.

pyiceberg forgets snapshots but deletes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

from rookery.clock import Time
from rookery.tables.icebergtransaction import OneLook
from rookery.tables.port import UpkeepPolicy, Upkept
from rookery.tables.thinning import superfluous


def expire(table: Table, policy: UpkeepPolicy, now: Time, done: Upkept) -> set[str]:
    """Forget the snapshots that the policy does not keep, and delete their files.

    Returns the addresses of all files that those need which are left.
    """
    files = _Files(table)
    before = files.of(table.metadata.snapshots)
    old = _old(table, policy, now)
    if not old:
        return before
    try:
        with OneLook(table) as transaction:
            ExpireSnapshots(transaction).by_ids(old).commit()
    except CommitFailedException:
        return before  # A batch was committed at this moment: there will be another time.
    table.refresh()
    after = files.of(table.metadata.snapshots)
    done.versions_expired += len(old)
    for path in before - after:
        table.io.delete(path)
        done.files_deleted += 1
        done.bytes_deleted += files.sizes[path]
    return after


def _old(table: Table, policy: UpkeepPolicy, now: Time) -> list[int]:
    """Return the snapshots to forget; not those that a branch or a tag names."""
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    snapshots = sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
    places = superfluous([one.timestamp_ms for one in snapshots], policy, now)
    found = [snapshots[place].snapshot_id for place in places]
    return [one for one in found if one not in named]


class _Files:
    """What snapshots need; each of their lists, which never change, is read once."""

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self._by_snapshot: dict[int, set[str]] = {}
        self._by_manifest: dict[str, set[str]] = {}
        self.sizes: dict[str, int] = {}
        """In bytes; 0 where that is not known."""

    def of(self, snapshots: Iterable[Snapshot]) -> set[str]:
        """Return the addresses of all files that these snapshots need."""
        return set().union(*map(self._of_snapshot, snapshots))

    def _of_snapshot(self, snapshot: Snapshot) -> set[str]:
        found = self._by_snapshot.get(snapshot.snapshot_id)
        if found is None:
            found = {snapshot.manifest_list}.union(
                *map(self._of_manifest, snapshot.manifests(self._io))
            )
            self.sizes[snapshot.manifest_list] = 0
            self._by_snapshot[snapshot.snapshot_id] = found
        return found

    def _of_manifest(self, manifest: ManifestFile) -> set[str]:
        path = manifest.manifest_path
        found = self._by_manifest.get(path)
        if found is None:
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            sizes = {one.data_file.file_path: one.data_file.file_size_in_bytes for one in entries}
            self.sizes |= {path: manifest.manifest_length, **sizes}
            found = self._by_manifest[path] = {path, *sizes}
        return found
