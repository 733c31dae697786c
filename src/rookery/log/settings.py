"""What a user may set about the log: journal files, reading, the cache, and upkeep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rookery.errors import ConfigError

_LARGEST_BYTES: Final = (1 << 30) - 64

Durability = Literal["disk", "os"]
"""When an append is done: on the disk, or handed to the operating system (Kafka's default)."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The bounds of journal files and of the writes to them."""

    file_bytes: int = 256 * 1024 * 1024
    """Size at which a new file is begun; one larger append has a file to itself."""
    group_bytes: int = 16 * 1024 * 1024
    """Bytes of waiting appends that are written and synced together."""
    attempts: int = 3
    """New files tried, one after the other, before an append fails."""
    retry_ms: int = 100
    """After that, appends are refused for this long before the disk is tried again."""


@dataclass(frozen=True, slots=True)
class FilesSettings:
    """The bounds of reading journal files."""

    threads: int = 4
    """Reads at the same time."""
    max_open: int = 128
    """Files kept open for the next read."""


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
    """Part of the cache in which blocks that were read once push out each other only."""
    max_ahead: int = 8
    """Blocks of journal files read ahead at the same time; 0 reads only what is asked for."""
    ahead_blocks: int = 8
    """Blocks of objects in the store read ahead of one reader; all readers together have half of
    probation for what was read ahead and not yet asked for."""


@dataclass(frozen=True, slots=True)
class RewriteSettings:
    """When batches are moved on, and how much at a time."""

    merge_bytes: int = 64 * 1024 * 1024
    """Size of a merged object, and of what is read for it."""
    merge_rows: int = 100_000
    """Rows that are read at once, since each costs memory, too."""
    merge_age_ms: int = 60_000
    """After so long, batches are merged even if they are few."""
    max_age_ms: int = 7 * 86_400_000
    """After so long, the rest is moved out of a merged object that is half empty."""
    row_bytes: int = 1024 * 1024
    """Size of a row in a merged object: a reader looks through one for an offset."""
    segment_bytes: int = 64 * 1024 * 1024
    """Size at which a partition's batches become a segment."""
    segment_age_ms: int = 3_600_000
    """After this long they become a segment if they have at least"""
    segment_min_bytes: int = 1024 * 1024
    """… this size; fewer do when they are as old as the topic's segment.ms."""
    index_interval: int = 100
    """Messages between two entries of a segment's index."""
    index_interval_bytes: int = 64 * 1024
    """Bytes between them at most."""
    round_bytes: int = 1024 * 1024 * 1024
    """How much is rewritten before other upkeep has its turn."""

    def __post_init__(self) -> None:
        """Refuse what no object could be made of."""
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ConfigError(f"must be above 0, not {getattr(self, name)}", name=name)
        for name in ("merge_bytes", "segment_bytes", "row_bytes"):
            if getattr(self, name) > _LARGEST_BYTES:
                raise ConfigError(f"must stay below 1 GiB, not {getattr(self, name)}", name=name)


@dataclass(frozen=True, slots=True)
class CareSettings:
    """The rhythm of upkeep."""

    snapshot_entries: int = 10_000
    """A snapshot is written after so many entries,"""
    snapshot_bytes: int = 64 * 1024 * 1024
    """… after so many bytes of them,"""
    snapshot_age_ms: int = 60_000
    """… or after this long, if objects wait to be deleted or topics have changed."""
    producer_expiration_ms: int = 86_400_000
    """After so long an idle producer is forgotten."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How compaction works, whatever the topic."""

    map_bytes: int = 128 * 1024 * 1024
    """Memory for the keys of one partition's dirty part; what has no room waits for the next."""
    min_bytes: int = 1024 * 1024
    """Less than this is not worth a rewrite, unless it has waited for `segment.ms`."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ConfigError(f"must be above 0, not {getattr(self, name)}", name=name)
