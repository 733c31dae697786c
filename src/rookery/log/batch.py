"""A batch on its way into the log."""

from __future__ import annotations

from typing import NamedTuple

from rookery.records.batch import BatchHeader


class Batch(NamedTuple):
    """A batch that was checked: whose it is, its bytes, its header."""

    topic_id: bytes
    partition: int
    data: memoryview
    header: BatchHeader
    joins_transaction: bool = False
    """Whether a transactional batch adds its partition to the transaction by itself (KIP-890)."""
