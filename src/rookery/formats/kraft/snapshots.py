"""Snapshots of the metadata log: `00000000000000012345-0000000007.checkpoint`.

A snapshot has the format of a log: a control batch that opens it (SNAPSHOT_HEADER, and the quorum's
version and voters), metadata records, and a control batch that closes it (SNAPSHOT_FOOTER). The
name contains the offset after the last record that the snapshot covers, and that record's epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from rookery.formats.kraft.entries import ControlEntry, MetadataEntry, pack_batch, pack_control
from rookery.formats.logfile.names import OFFSET_LIMIT
from rookery.model.control import ControlRecordType
from rookery.wire.control import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from rookery.wire.message import Message

RECORDS_IN_BATCH: Final = 500
"""The number of records in one batch of a snapshot that we write."""

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint(\.part|\.deleted)?")


class SnapshotName(NamedTuple):
    """The end of a snapshot."""

    end_offset: int
    epoch: int

    @property
    def text(self) -> str:
        """The file's name."""
        return f"{self.end_offset:020}-{self.epoch:010}.checkpoint"


def parse_snapshot_name(name: str) -> SnapshotName | None:
    """Parse the name of a snapshot; None if it is not one, or is incomplete."""
    match = _NAME.fullmatch(name)
    if match is None or match[3] or int(match[1]) >= OFFSET_LIMIT or int(match[2]) >= 1 << 31:
        return None
    return SnapshotName(int(match[1]), int(match[2]))


def is_whole(entries: Iterable[MetadataEntry | ControlEntry]) -> bool:
    """Return whether a snapshot has its header and footer, so that it is not truncated."""
    types = [entry.type for entry in entries if isinstance(entry, ControlEntry)]
    return bool(types) and (types[0], types[-1]) == (
        ControlRecordType.SNAPSHOT_HEADER,
        ControlRecordType.SNAPSHOT_FOOTER,
    )


def pack_snapshot(
    messages: Iterable[tuple[Message, int]],
    *,
    epoch: int = 0,
    timestamp: int = 0,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> bytes:
    """Write a snapshot of metadata records, each with its version.

    Args:
        messages: the records; there may be none.
        epoch: the epoch of the last record that it covers.
        timestamp: the time of that record.
        kraft_version: 1 if the log contains the quorum's voters.
        voters: the voters, if so.
    """
    out = bytearray(pack_control(_head(timestamp, kraft_version, voters), 0, epoch, timestamp))
    offset = 1 + (2 if voters is not None else 0)
    rows = list(messages)
    for start in range(0, len(rows), RECORDS_IN_BATCH):
        part = rows[start : start + RECORDS_IN_BATCH]
        out += pack_batch(part, offset, epoch, timestamp)
        offset += len(part)
    footer = (ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))
    return bytes(out + pack_control([footer], offset, epoch, timestamp))


def _head(
    timestamp: int, kraft_version: int, voters: VotersRecord | None
) -> list[tuple[ControlRecordType, Message]]:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp)
    records: list[tuple[ControlRecordType, Message]] = [(ControlRecordType.SNAPSHOT_HEADER, header)]
    if voters is not None:
        version = KRaftVersionRecord(version=0, k_raft_version=kraft_version)
        records.append((ControlRecordType.KRAFT_VERSION, version))
        records.append((ControlRecordType.KRAFT_VOTERS, voters))
    return records
