"""Settings of the log: journal files, reads, the cache, and maintenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rookery.errors import ConfigError

_LARGEST_BYTES: Final = (1 << 30) - 64

Durability = Literal["disk", "os"]
"""When an append is acknowledged: on the disk, or in the operating system (Kafka's default)."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The bounds of journal files and of the writes to them."""

    file_bytes: int = 256 * 1024 * 1024
    """Size at which a new file is started; a larger append gets a file of its own."""
    group_bytes: int = 16 * 1024 * 1024
    """Bytes of waiting appends that are written and synced together."""
    attempts: int = 3
    """New files tried in sequence before an append fails."""
    retry_ms: int = 100
    """After that, appends are rejected for this long before the disk is tried again."""


@dataclass(frozen=True, slots=True)
class FilesSettings:
    """The bounds of reading journal files."""

    threads: int = 4
    """Number of concurrent reads."""
    max_open: int = 128
    """Number of files kept open for the next read."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The bounds of the read cache."""

    max_bytes: int = 256 * 1024 * 1024
    """Bytes of blocks kept."""
    block_bytes: int = 1024 * 1024
    """Size of a block of a journal file; reads start at multiples of it."""
    stored_block_bytes: int = 4 * 1024 * 1024
    """Size of a block of an object in the store, where a request costs more than its bytes."""
    probation_percent: int = 25
    """Share of the cache for blocks that were read once; they evict only each other."""
    max_ahead: int = 8
    """Blocks of journal files read ahead at the same time; 0 disables read-ahead."""
    ahead_blocks: int = 8
    """Blocks of objects in the store that are read ahead of one reader.

    All readers together have half of probation for blocks that were read ahead and not requested
    yet.
    """


@dataclass(frozen=True, slots=True)
class RewriteSettings:
    """When batches are rewritten, and how much at a time."""

    merge_bytes: int = 64 * 1024 * 1024
    """Size of a merged object, and of the bytes read for it."""
    merge_rows: int = 100_000
    """Number of rows that one job reads, because each row costs memory."""
    merge_age_ms: int = 60_000
    """Age after which batches are merged even if there are few."""
    max_age_ms: int = 7 * 86_400_000
    """Age after which the rest of a half-empty merged object is moved out of it."""
    row_bytes: int = 1024 * 1024
    """Size of a row in a merged object: a reader scans one row to find an offset."""
    segment_bytes: int = 64 * 1024 * 1024
    """Size at which a partition's batches become a segment."""
    segment_age_ms: int = 3_600_000
    """Age after which batches become a segment if they have `segment_min_bytes`."""
    segment_min_bytes: int = 1024 * 1024
    """Minimum size of a segment that is built because of its age; the topic's segment.ms still
    applies to fewer bytes."""
    index_interval: int = 100
    """Messages between two entries of a segment's index."""
    index_interval_bytes: int = 64 * 1024
    """Maximum number of bytes between two entries of the index."""
    round_bytes: int = 1024 * 1024 * 1024
    """Bytes that are rewritten before other maintenance runs."""

    def __post_init__(self) -> None:
        """Reject values with which no object can be built."""
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ConfigError(f"must be above 0, not {getattr(self, name)}", name=name)
        for name in ("merge_bytes", "segment_bytes", "row_bytes"):
            if getattr(self, name) > _LARGEST_BYTES:
                raise ConfigError(f"must stay below 1 GiB, not {getattr(self, name)}", name=name)


@dataclass(frozen=True, slots=True)
class CareSettings:
    """The intervals of maintenance."""

    snapshot_entries: int = 10_000
    """A snapshot is written after this number of entries,"""
    snapshot_bytes: int = 64 * 1024 * 1024
    """… after this number of bytes of entries,"""
    snapshot_age_ms: int = 60_000
    """… or after this long, if objects wait to be deleted or topics have changed."""
    producer_expiration_ms: int = 86_400_000
    """Age after which an idle producer is removed."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Settings of compaction for all topics."""

    map_bytes: int = 128 * 1024 * 1024
    """Memory for the keys of one partition's dirty part; the rest waits for the next run."""
    min_bytes: int = 1024 * 1024
    """A smaller dirty part is not rewritten, unless it has waited for `segment.ms`."""

    def __post_init__(self) -> None:
        """Reject values that cannot work."""
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ConfigError(f"must be above 0, not {getattr(self, name)}", name=name)
