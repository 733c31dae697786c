"""The name of a partition."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then by number."""

    topic: str
    partition: int

    @property
    def text(self) -> str:
        """The name of the partition's directory in Kafka."""
        return f"{self.topic}-{self.partition}"
