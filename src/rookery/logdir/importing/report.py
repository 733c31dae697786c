"""What an import has done, and what is to be said about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rookery.logdir.damage import Damage
from rookery.model.partition import TopicPartition

Progress = Callable[[int, int], None]
"""Is told of bytes and records that were brought over, or looked at again."""


@dataclass(slots=True)
class ImportReport:
    """What an import has done."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    records: int = 0
    producers: int = 0
    transactional_ids: int = 0
    groups: int = 0
    offsets: int = 0
    """Offsets that groups had committed."""
    already: list[TopicPartition] = field(default_factory=list)
    """Partitions that an earlier import had brought over."""
    ended: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """Producer ids whose open transactions were ended, as nobody else will."""
    skipped: list[Damage] = field(default_factory=list)
    """Batches that are damaged and were left out."""
    left_out: list[str] = field(default_factory=list)
    """What is in the directory and was not brought over, in words."""
    newest: dict[TopicPartition, int] = field(default_factory=dict)
    """The time of the last record of each partition that was brought over."""
    old_topics: list[str] = field(default_factory=list)
    """Topics whose records are all older than they are kept: brokers will delete them."""
    verified: int = 0
    """Batches that were read back and compared."""

    def as_json(self) -> dict[str, object]:
        """Return it for scripts."""
        return {
            "topics": self.topics,
            "partitions": self.partitions,
            "segments": self.segments,
            "bytes": self.bytes,
            "records": self.records,
            "producers": self.producers,
            "transactional_ids": self.transactional_ids,
            "groups": self.groups,
            "offsets": self.offsets,
            "already_there": [one.text for one in self.already],
            "ended_transactions": {place.text: ids for place, ids in self.ended.items()},
            "skipped": [one.text for one in self.skipped],
            "left_out": self.left_out,
            "too_old": self.old_topics,
            "verified_batches": self.verified,
        }
