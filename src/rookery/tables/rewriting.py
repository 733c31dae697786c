"""What tables made of files have in common when they are compacted.

Some files of the table are read and others written in their place; the format then swaps them in
one commit, if those that were read are still there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from rookery.clock import SystemRandom
from rookery.tables import staging
from rookery.tables.folder import Folder
from rookery.tables.port import DataFile, UpkeepPolicy
from rookery.tables.upserting import Swap


def compactions(live: Sequence[DataFile], policy: UpkeepPolicy) -> Iterator[list[DataFile]]:
    """Yield groups of files that are worth being one file."""
    group: list[DataFile] = []
    for file in live:
        if file.bytes >= policy.small_bytes:
            continue
        if sum(one.bytes for one in group) + file.bytes > policy.target_bytes:
            if len(group) >= policy.min_files:
                yield group
            group = []
        group.append(file)
    if len(group) >= policy.min_files:
        yield group


def compacted(folder: Folder, group: Sequence[DataFile], schema: pa.Schema) -> Swap:
    """Write a group of files as one."""
    batches = (batch for file in group for batch in staging.rows(folder, file, schema))
    attempt = f"compacted-{SystemRandom().token(8).hex()}"
    return Swap(list(group), staging.stage(folder, batches, schema, attempt))
