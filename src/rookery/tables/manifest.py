"""The log of a Parquet table: one object per version, created once, that lists the changes.

    _rookery/log/00000000000000000007.json          what version 7 added and removed
    _rookery/checkpoints/00000000000000000032.json  all that versions 1 to 32 amount to

Only one writer can create the object of a version, and its contents define that version. No other
coordination is needed. A checkpoint only reduces reads; any process can write it, and all write the
same contents.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from rookery.errors import Conflict, Corrupt
from rookery.store.port import NotFound
from rookery.tables.folder import TableFolder
from rookery.tables.port import DataFile

_LOG: Final = "_rookery/log/"
_CHECKPOINTS: Final = "_rookery/checkpoints/"
_EVERY: Final = 32
_FORMAT: Final = 1
_GONE_AGAIN: Final = 10


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version: its changes."""

    version: int
    at: int
    """The time in ms, by the writer's clock."""
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()
    schema: str = ""
    """Arrow's serialised form, in hex; empty if unchanged."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """The last batch by pipeline, if this version commits a batch."""


@dataclass(frozen=True, slots=True)
class Version:
    """The complete contents of a version."""

    version: int = 0
    at: int = 0
    files: Mapping[str, DataFile] = field(default_factory=dict)
    schema: str = ""
    commits: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Files that were removed but may still exist, with the time of removal."""

    def after(self, entry: TableVersion) -> Version:
        """Return the version that results from one more entry."""
        files = {path: file for path, file in self.files.items() if path not in entry.removed}
        files.update({file.path: file for file in entry.added})
        return Version(
            entry.version,
            entry.at,
            files,
            entry.schema or self.schema,
            {**self.commits, **entry.commits},
            {**self.dropped, **dict.fromkeys(entry.removed, entry.at)},
        )

    def arrow_schema(self) -> pa.Schema | None:
        """Return the columns, None if there are none yet."""
        return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.schema))) if self.schema else None


def current(folder: TableFolder) -> Version:
    """Return the newest version; costs two LISTs, a checkpoint, and the entries since."""
    for _ in range(_GONE_AGAIN):
        checkpoints = [stored.key for stored in folder.list(_CHECKPOINTS)]
        try:
            version = _read_checkpoint(folder, checkpoints[-1]) if checkpoints else Version()
            return _follow(folder, version)
        except NotFound:
            continue  # Upkeep has just deleted it; there is a newer one.
    raise Conflict(f"table {folder.name!r}: its log changes faster than it can be read; try again")


def append(folder: TableFolder, version: Version, entry: TableVersion) -> Version:
    """Add the next version.

    Raises:
        Conflict: another writer has added that version.
    """
    if missing := [path for path in entry.removed if path not in version.files]:
        raise Conflict(f"table {folder.name!r}: {missing[0]} no longer belongs to it")
    folder.create(_key(_LOG, entry.version), _to_bytes(asdict(entry)))
    after = version.after(entry)
    if after.version % _EVERY == 0:
        checkpoint(folder, after)
    return after


def checkpoint(folder: TableFolder, version: Version) -> None:
    """Write the checkpoint of a version, if it does not exist."""
    value = asdict(version)
    value["files"] = list(value["files"].values())
    try:
        folder.create(_key(_CHECKPOINTS, version.version), _to_bytes(value))
    except Conflict:
        return


def forget(folder: TableFolder, version: Version, gone: Iterable[str], before: int) -> int:
    """Checkpoint a version without deleted files, and delete older entries and checkpoints.

    Returns the number of deleted entries. Only entries up to `before` are deleted.
    """
    deleted = set(gone)
    left = {path: at for path, at in version.dropped.items() if path not in deleted}
    checkpoint(folder, replace(version, dropped=left))
    old = [file.key for file in folder.list(_LOG) if _number(file.key) <= before]
    older = [file.key for file in folder.list(_CHECKPOINTS) if _number(file.key) < version.version]
    for key in (*old, *older):
        folder.delete(key)
    return len(old)


def entry_times(folder: TableFolder, version: Version) -> list[tuple[int, int]]:
    """Return the number and time of each remaining entry."""
    keys = [file.key for file in folder.list(_LOG) if _number(file.key) <= version.version]
    entries = [
        _read_entry(key, data) for key, data in zip(keys, folder.read_all(keys), strict=True)
    ]
    return [(entry.version, entry.at) for entry in entries]


def _follow(folder: TableFolder, version: Version) -> Version:
    keys = [file.key for file in folder.list(_LOG) if _number(file.key) > version.version]
    for key, data in zip(keys, folder.read_all(keys), strict=True):
        entry = _read_entry(key, data)
        if entry.version != version.version + 1:
            raise NotFound(_key(_LOG, version.version + 1))
        version = version.after(entry)
    return version


def _read_entry(key: str, data: bytes) -> TableVersion:
    value = parse_record(key, data, _FORMAT)
    value["added"] = [DataFile(**file) for file in value["added"]]
    return TableVersion(**value)


def _read_checkpoint(folder: TableFolder, key: str) -> Version:
    value = parse_record(key, folder.read(key), _FORMAT)
    value["files"] = {file["path"]: DataFile(**file) for file in value["files"]}
    return Version(**value)


def _key(prefix: str, version: int) -> str:
    return f"{prefix}{version:020}.json"


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].removesuffix(".json"))


def _to_bytes(value: dict[str, object]) -> bytes:
    return json.dumps({"format": _FORMAT, **value}, separators=(",", ":")).encode()


def parse_record(key: str, data: bytes, form: int) -> dict[str, Any]:
    """Read a JSON object that has the number of its format.

    Raises:
        Corrupt: it is not JSON, or has another format.
    """
    try:
        value: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise Corrupt(f"{key}: no JSON: {error}") from error
    if value.pop("format", None) != form:
        raise Corrupt(f"{key}: written by a version of Rookery that this one does not know")
    return value
