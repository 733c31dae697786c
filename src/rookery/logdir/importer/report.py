"""The report of an import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rookery.logdir.damage import Damage
from rookery.model.partition import TopicPartition

Progress = Callable[[int, int], None]
"""Called with the bytes and records that were imported or verified."""


@dataclass(slots=True)
class ImportReport:
    """The report of an import."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    records: int = 0
    producers: int = 0
    transactional_ids: int = 0
    groups: int = 0
    offsets: int = 0
    """The committed offsets of groups."""
    rules: int = 0
    """New access rules."""
    users: int = 0
    """Users with new credentials."""
    quotas: int = 0
    """Users, client ids and addresses with new quotas."""
    tokens: int = 0
    """Delegation tokens that were added."""
    already: list[TopicPartition] = field(default_factory=list)
    """Partitions that an earlier import had completed."""
    ended: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """Producer ids whose open transactions were ended, since no other process can end them."""
    skipped: list[Damage] = field(default_factory=list)
    """Damaged batches that were skipped."""
    left_out: list[str] = field(default_factory=list)
    """Contents of the directory that were not imported, as text."""
    newest: dict[TopicPartition, int] = field(default_factory=dict)
    """The timestamp of the last record of each imported partition."""
    old_topics: list[str] = field(default_factory=list)
    """Topics whose records all exceed their retention: brokers will delete them."""
    verified: int = 0
    """The number of batches that were read back and compared."""

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
            "access_rules": self.rules,
            "users": self.users,
            "quotas": self.quotas,
            "delegation_tokens": self.tokens,
            "already_there": [partition.text for partition in self.already],
            "ended_transactions": {place.text: ids for place, ids in self.ended.items()},
            "skipped": [damage.text for damage in self.skipped],
            "left_out": self.left_out,
            "too_old": self.old_topics,
            "verified_batches": self.verified,
        }
