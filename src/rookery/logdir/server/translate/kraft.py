"""Writes changes of topics and settings as records of `__cluster_metadata-0`.

They are written as by a controller, in the quorum's last epoch: a Kafka that is started on the
directory later replays them and continues from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rookery.cluster.events import brokerevents, topicevents
from rookery.cluster.resources import TOPIC_RESOURCE, resource_name
from rookery.formats.kraft.entries import (
    CLUSTER_METADATA,
    METADATA_FOLDER,
    METADATA_TOPIC_ID,
    pack_batch,
    version_for,
)
from rookery.logdir.server.loadeddirectory import LoadedDirectory, adopt, open_all
from rookery.logdir.server.repair import repair_segment
from rookery.logdir.writer.appendlog import AppendLog
from rookery.logdir.writer.segmentfile import NewBatch
from rookery.model.partition import TopicPartition
from rookery.records import batches
from rookery.wire.kraft.cluster import ConfigRecord, ProducerIdsRecord
from rookery.wire.kraft.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from rookery.wire.message import Message

_PRODUCER_IDS: Final = 1000
_RECORDS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class MetadataLimits:
    """The limits for segments of the metadata log."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000


class MetadataWriter:
    """Appends to the metadata log."""

    def __init__(self, loaded: LoadedDirectory, log: AppendLog) -> None:
        image = loaded.directory.image
        self.log = log
        self.limits = MetadataLimits()
        self._node_id = loaded.node_id
        self._epoch = image.epoch
        self._level = image.metadata_version
        self._next_id = image.next_producer_id
        meta = loaded.directory.meta
        self._directory_id = (meta.directory_id if meta is not None else None) or bytes(16)
        broker = image.brokers.get(loaded.node_id)
        self.broker_epoch = broker.broker_epoch if broker is not None else -1

    def batch(self, records: Sequence[Message], base_offset: int, now_ms: int) -> NewBatch:
        """Return records as one batch of the log."""
        rows = [(record, version_for(record, self._level)) for record in records]
        data = pack_batch(rows, base_offset, self._epoch, now_ms)
        return NewBatch(batches.parse(data), data)

    def encode_created(self, event: topicevents.TopicCreated) -> Iterable[Message]:
        """Return the records of a new topic."""
        yield TopicRecord(name=event.name, topic_id=event.topic_id)
        for change in event.configs:
            yield _config(TOPIC_RESOURCE, event.name, change)
        yield from self.partitions(event.topic_id, range(event.partitions))

    def partitions(self, topic_id: bytes, indexes: Iterable[int]) -> Iterable[Message]:
        """Return the records of new partitions of a topic."""
        for index in indexes:
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[self._node_id],
                isr=[self._node_id],
                removing_replicas=[],
                adding_replicas=[],
                leader=self._node_id,
                leader_epoch=0,
                partition_epoch=0,
                directories=[self._directory_id],
            )

    def encode_deleted(self, topic_id: bytes) -> Message:
        """Return the record of a deleted topic."""
        return RemoveTopicRecord(topic_id=topic_id)

    def encode_configs(self, event: brokerevents.ConfigsChanged) -> Iterable[Message]:
        """Return the records of changed settings."""
        name = resource_name(event.resource_type, event.resource_name)
        for change in event.changes:
            yield _config(event.resource_type, name, change)

    def producer_ids(self, next_id: int) -> Iterable[Message]:
        """Return the record that ids below `next_id` are assigned, in blocks of a thousand."""
        if next_id <= self._next_id:
            return
        while self._next_id < next_id:
            self._next_id += _PRODUCER_IDS
        yield ProducerIdsRecord(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            next_producer_id=self._next_id,
        )


def _config(type_: int, name: str, change: brokerevents.SettingChange) -> ConfigRecord:
    return ConfigRecord(
        resource_type=type_, resource_name=name, name=change.name, value=change.value
    )


def metadata_log(loaded: LoadedDirectory) -> AppendLog:
    """Return the metadata log for appending; a missing one is created."""
    metadata = loaded.directory.metadata
    name = TopicPartition(CLUSTER_METADATA, 0)
    if metadata is None:
        folder = loaded.directory.paths[0] / METADATA_FOLDER
        return AppendLog(folder, name, METADATA_TOPIC_ID, loaded.files.number)
    log = AppendLog(metadata.folder, name, METADATA_TOPIC_ID, loaded.files.number)
    opened = open_all(metadata.log)
    for segment in opened:
        repair_segment(segment)
    adopt(loaded, log, opened, metadata.log.log_end)
    log.epochs = list(metadata.log.epochs)
    return log


def lead(loaded: LoadedDirectory, writer: MetadataWriter) -> None:
    """Write that this node leads the local partitions that had no leader or another one."""
    topics = loaded.directory.image.topics.by_id
    records: list[Message] = []
    for topic_id, index in loaded.unled:
        partition = topics[topic_id].partitions[index]
        alone = (loaded.node_id,)
        eligible = partition.eligible_leader_replicas + partition.last_known_elr
        records.append(
            PartitionChangeRecord(
                partition_id=index,
                topic_id=topic_id,
                leader=loaded.node_id,
                isr=None if partition.isr == alone else list(alone),
                # A replica that is in sync must not be listed as eligible, too.
                eligible_leader_replicas=[] if eligible else None,
                last_known_elr=[] if eligible else None,
            )
        )
    for at in range(0, len(records), _RECORDS_AT_ONCE):
        batch = writer.batch(
            records[at : at + _RECORDS_AT_ONCE], writer.log.next_offset, loaded.now_ms
        )
        for run in writer.log.plan([batch], writer.limits):
            writer.log.write(run)
    writer.log.sync()
