"""Names of the files and folders in a Kafka log directory, with their parsers.

A partition's folder is `topic-partition`. A folder that is being deleted, moved in from another
disk, or unknown to the cluster is `topic-partition.uniqueid-delete`, `-future` or `-stray`. A file
name consists of the 20 digits of the first offset that it may hold, and its kind. Files of an
interrupted cleaner end in `.cleaned`, `.swap` or `.deleted`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from rookery.model.partition import TopicPartition

META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
BOOTSTRAP: Final = "bootstrap.checkpoint"
"""The features of a new cluster; valid only until the metadata log has records."""

OFFSET_LIMIT: Final = 1 << 63


class FileKind(StrEnum):
    """The contents of a partition's file; the value is the ending of its name."""

    LOG = "log"
    INDEX = "index"
    TIMES = "timeindex"
    ABORTED = "txnindex"
    PRODUCERS = "snapshot"


class Stage(StrEnum):
    """Why a file or folder is not valid; the value is the ending of its name."""

    DELETED = "deleted"
    CLEANED = "cleaned"
    SWAP = "swap"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class FileName(NamedTuple):
    """The parsed name of a partition's file."""

    base_offset: int
    kind: FileKind
    stage: Stage | None = None

    @property
    def text(self) -> str:
        """The name as Kafka writes it."""
        ending = f".{self.stage}" if self.stage else ""
        return f"{self.base_offset:020}.{self.kind}{ending}"


class FolderName(NamedTuple):
    """The parsed name of a partition's folder."""

    partition: TopicPartition
    stage: Stage | None = None
    unique: str = ""

    @property
    def text(self) -> str:
        """The name as Kafka writes it."""
        ending = f".{self.unique}-{self.stage}" if self.stage else ""
        return f"{self.partition.text}{ending}"


_FILE: Final = re.compile(
    rf"([0-9]{{20}})\.({'|'.join(FileKind)})(?:\.({Stage.DELETED}|{Stage.CLEANED}|{Stage.SWAP}))?"
)
_FOLDER: Final = re.compile(
    r"([a-zA-Z0-9._-]+)-([0-9]{1,10})"
    rf"(?:\.([0-9a-zA-Z_-]+)-({Stage.DELETE}|{Stage.FUTURE}|{Stage.STRAY}))?"
)


def file_name(base_offset: int, kind: FileKind) -> str:
    """Return the name of a valid file of a partition."""
    if not 0 <= base_offset < OFFSET_LIMIT:
        raise ValueError(f"offset {base_offset} is not within 0..{OFFSET_LIMIT - 1}")
    return FileName(base_offset, kind).text


def parse_file_name(name: str) -> FileName | None:
    """Parse the name of a partition's file; None if it is not one of Kafka's."""
    match = _FILE.fullmatch(name)
    if match is None or int(match[1]) >= OFFSET_LIMIT:
        return None
    return FileName(int(match[1]), FileKind(match[2]), Stage(match[3]) if match[3] else None)


def parse_folder_name(name: str) -> FolderName | None:
    """Parse the name of a partition's folder; None if it is not one of Kafka's."""
    match = _FOLDER.fullmatch(name)
    if match is None or int(match[2]) >= 1 << 31:
        return None
    partition = TopicPartition(match[1], int(match[2]))
    return FolderName(partition, Stage(match[4]) if match[4] else None, match[3] or "")
