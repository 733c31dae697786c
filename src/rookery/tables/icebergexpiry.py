"""Expires old snapshots of an Iceberg table and deletes the files that only they reference.

pyiceberg expires snapshots but deletes no files.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

from rookery.clock import Time
from rookery.tables.icebergtransaction import OneLook
from rookery.tables.port import UpkeepPolicy, UpkeepResult
from rookery.tables.versionretention import superfluous


def expire(table: Table, policy: UpkeepPolicy, now: Time, done: UpkeepResult) -> set[str]:
    """Expire the snapshots that the policy does not keep, and delete their files.

    Returns the addresses of all files that the remaining snapshots reference.
    """
    files = _Files(table)
    read = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    before = files.of(table.metadata.snapshots)
    # Reading the files takes a while, and other commits can happen meanwhile. pyiceberg deletes old
    # metadata files according to the loaded table. Without a refresh it would delete again those
    # that the commits have already deleted.
    table.refresh()
    old = [snapshot_id for snapshot_id in _old(table, policy, now) if snapshot_id in read]
    try:
        if old:
            with OneLook(table) as transaction:
                ExpireSnapshots(transaction).by_ids(old).commit()
    except CommitFailedException:
        old = []  # A batch was committed concurrently; the next run expires them.
    table.refresh()
    after = files.of(table.metadata.snapshots)
    if not old:
        return after
    done.versions_expired += len(old)
    for path in before - after:
        table.io.delete(path)
        done.files_deleted += 1
        done.bytes_deleted += files.sizes[path]
    return after


def _old(table: Table, policy: UpkeepPolicy, now: Time) -> list[int]:
    """Return the snapshots to expire, except those that a branch or a tag references."""
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    places = superfluous([snapshot.timestamp_ms for snapshot in snapshots], policy, now)
    expired = [snapshots[place].snapshot_id for place in places]
    return [snapshot_id for snapshot_id in expired if snapshot_id not in named]


class _Files:
    """The files that snapshots reference; each immutable manifest is read once.

    Hundreds of snapshots share most of their manifests, and manifests share most of their files. So
    this caches the manifests of each snapshot, and the files of each manifest.
    """

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self._manifests: dict[str, set[str]] = {}
        self._data: dict[str, set[str]] = {}
        self.sizes: dict[str, int] = {}
        """In bytes; 0 if unknown."""

    def of(self, snapshots: Iterable[Snapshot]) -> set[str]:
        """Return the addresses of all files that these snapshots reference."""
        lists = {snapshot.manifest_list for snapshot in snapshots}
        manifests = set().union(*map(self._manifests_of, lists))
        return lists.union(manifests, *(self._data[manifest] for manifest in manifests))

    def _manifests_of(self, address: str) -> set[str]:
        manifests = self._manifests.get(address)
        if manifests is None:
            listed = read_manifest_list(self._io.new_input(address))
            manifests = self._manifests[address] = set(map(self._read, listed))
            self.sizes[address] = 0
        return manifests

    def _read(self, manifest: ManifestFile) -> str:
        """Read the entries of a manifest; return its address."""
        address = manifest.manifest_path
        if address not in self._data:
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            paths = self._data[address] = set()
            for entry in entries:
                path = intern(entry.data_file.file_path)
                self.sizes[path] = entry.data_file.file_size_in_bytes
                paths.add(path)
            self.sizes[address] = manifest.manifest_length
        return address
