"""What a user may set about the local log: journal files, reading them, and the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
