"""Old snapshots of an Iceberg table: forgotten, and then what only they needed is deleted.

pyiceberg forgets snapshots but deletes nothing.
"""

from __future__ import annotations

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from rookery.clock import Time
from rookery.tables.port import UpkeepPolicy, Upkept


def expire(table: Table, policy: UpkeepPolicy, now: Time, done: Upkept) -> None:
    """Forget snapshots older than the policy keeps, and delete their files."""
    until = now - policy.keep_ms
    newest = sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms, reverse=True)
    candidates = newest[max(policy.keep_versions, 1) :]
    old = [one for one in candidates if one.timestamp_ms < until]
    if not old:
        return
    before = _reachable(table, table.metadata.snapshots)
    try:
        table.maintenance.expire_snapshots().by_ids(_unprotected(table, old)).commit()
    except CommitFailedException:
        return  # A batch was committed at this moment: there will be another time.
    table.refresh()
    after = _reachable(table, table.metadata.snapshots)
    done.versions_expired += len(old)
    for path, size in before.items():
        if path not in after:
            table.io.delete(path)
            done.files_deleted += 1
            done.bytes_deleted += size


def data_files(table: Table) -> set[str]:
    """Return the addresses of all data files that some snapshot needs."""
    return _reachable(table, table.metadata.snapshots).keys() | set()


def _unprotected(table: Table, old: list[Snapshot]) -> list[int]:
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    return [one.snapshot_id for one in old if one.snapshot_id not in named]


def _reachable(table: Table, snapshots: list[Snapshot]) -> dict[str, int]:
    """Return all files that these snapshots need, with their sizes where those are known."""
    found: dict[str, int] = {}
    for snapshot in snapshots:
        found[snapshot.manifest_list] = 0
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in found:
                continue
            found[manifest.manifest_path] = manifest.manifest_length
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                found[entry.data_file.file_path] = entry.data_file.file_size_in_bytes
    return found
