"""Topics and partitions according to the metadata log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rookery.wire.kraft.topics import (
    NO_CHANGE,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """The replicas and the leader of a partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    directories: tuple[bytes, ...] = ()
    """The id of the directory on each replica's disk, in the order of `replicas`."""
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def change(self, record: PartitionChangeRecord) -> MetadataPartition:
        """Return the partition after a change; fields that the record omits are unchanged."""
        elects = record.leader != NO_CHANGE
        recovery = record.leader_recovery_state
        return replace(
            self,
            replicas=_either(record.replicas, self.replicas),
            isr=_either(record.isr, self.isr),
            leader=record.leader if elects else self.leader,
            leader_epoch=self.leader_epoch + elects,
            partition_epoch=self.partition_epoch + 1,
            removing_replicas=_either(record.removing_replicas, self.removing_replicas),
            adding_replicas=_either(record.adding_replicas, self.adding_replicas),
            leader_recovery_state=self.leader_recovery_state if recovery < 0 else recovery,
            directories=self._directories(record),
            eligible_leader_replicas=_either(
                record.eligible_leader_replicas, self.eligible_leader_replicas
            ),
            last_known_elr=_either(record.last_known_elr, self.last_known_elr),
        )

    def record(self, topic_id: bytes, partition: int) -> PartitionRecord:
        """Return the whole partition as a record, as in a snapshot."""
        return PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.eligible_leader_replicas) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )

    def _directories(self, record: PartitionChangeRecord) -> tuple[bytes, ...]:
        if record.directories is not None:
            return tuple(record.directories)
        if record.replicas is None:
            return self.directories
        # A replica that moves keeps its directory; that of a new replica is not known yet.
        known = dict(zip(self.replicas, self.directories, strict=False))
        return tuple(known.get(replica, bytes(16)) for replica in record.replicas)


@dataclass(slots=True)
class MetadataTopic:
    """A topic and its partitions by number."""

    name: str
    topic_id: bytes
    partitions: dict[int, MetadataPartition] = field(default_factory=dict)

    def record(self) -> TopicRecord:
        """Return the topic as a record, without its partitions."""
        return TopicRecord(name=self.name, topic_id=self.topic_id)


@dataclass(slots=True)
class MetadataTopics:
    """All topics of a cluster, by id and by name."""

    by_id: dict[bytes, MetadataTopic] = field(default_factory=dict)
    by_name: dict[str, MetadataTopic] = field(default_factory=dict)

    def create(self, record: TopicRecord) -> None:
        """Add a new topic."""
        topic = MetadataTopic(record.name, record.topic_id)
        self.by_id[record.topic_id] = self.by_name[record.name] = topic

    def place(self, record: PartitionRecord) -> bool:
        """Add a whole partition; False if its topic is not known."""
        topic = self.by_id.get(record.topic_id)
        if topic is None:
            return False
        topic.partitions[record.partition_id] = MetadataPartition(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=record.leader_recovery_state,
            directories=tuple(record.directories),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        return True

    def change(self, record: PartitionChangeRecord) -> bool:
        """Apply a change of a partition; False if the partition is not known."""
        topic = self.by_id.get(record.topic_id)
        partition = topic.partitions.get(record.partition_id) if topic else None
        if topic is None or partition is None:
            return False
        topic.partitions[record.partition_id] = partition.change(record)
        return True

    def remove(self, topic_id: bytes) -> str | None:
        """Remove a topic; return its name, None if it was not known."""
        topic = self.by_id.pop(topic_id, None)
        if topic is None:
            return None
        # A topic may be followed by another with the same name, which must be kept.
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
        return topic.name

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the eligible leader replicas of one topic, or of all."""
        for topic in self.by_id.values():
            if record.topic_name in {"", topic.name}:
                for number, partition in topic.partitions.items():
                    topic.partitions[number] = replace(
                        partition, eligible_leader_replicas=(), last_known_elr=()
                    )


def _either(changed: list[int] | None, kept: tuple[int, ...]) -> tuple[int, ...]:
    return kept if changed is None else tuple(changed)
