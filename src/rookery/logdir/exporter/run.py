"""The whole export: every partition, cluster metadata, Kafka's internal topics, checkpoints.

Everything is written into a temporary folder next to the target, which is renamed at the end: an
interrupted export never looks complete.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rookery.clock import Clock, Random
from rookery.cluster.state import producers
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import ConfigError
from rookery.formats.kraft.image import TOPIC
from rookery.formats.logfile.checkpoints import LoggedEpoch, format_offsets
from rookery.formats.logfile.identity import (
    MetaProperties,
    format_clean_shutdown,
    format_meta,
)
from rookery.formats.logfile.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
)
from rookery.formats.logfile.producers import NO_OFFSET, ProducerEntry
from rookery.log.read.tail import Key, TailSlice
from rookery.logdir.accesscontrol import records_of
from rookery.logdir.exporter import internal
from rookery.logdir.exporter.logs import ExportedPartition, PartitionExporter
from rookery.logdir.exporter.quorum import write_metadata
from rookery.model.address import Address
from rookery.model.partition import TopicPartition
from rookery.model.topicname import RESERVED_TOPICS
from rookery.model.uuid import random_uuid, uuid_text
from rookery.records.recordcodec import Record
from rookery.wire.coordinator.catalog import CONSUMER_OFFSETS, TRANSACTION_STATE
from rookery.wire.kraft.cluster import ConfigRecord, ProducerIdsRecord
from rookery.wire.kraft.topics import PartitionRecord, TopicRecord
from rookery.wire.message import Message

log = logging.getLogger(__name__)

Read = Callable[[Key, Partition, int, int], Awaitable[TailSlice]]
"""Reads batches of a partition from an offset on, up to a number of bytes."""
Progress = Callable[[int, int], None]

_STEP_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The options of an export."""

    node_id: int = 1
    controller: Address = Address("localhost", 9093)  # noqa: RUF009 (it cannot change)
    """The address of the listener CONTROLLER of the Kafka that will use the directory."""
    segment_bytes: int = 1 << 30
    topics: frozenset[str] | None = None
    """Only these topics; all, if not given."""


@dataclass(slots=True)
class ExportReport:
    """The totals of an export."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    records: int = 0
    bytes: int = 0
    groups: int = 0
    transactional_ids: int = 0
    access_rules: int = 0
    users: int = 0
    quotas: int = 0
    """Users, client ids and addresses with quotas."""
    left_out: list[str] = field(default_factory=list)
    """Topics with Kafka's internal names, which are not written."""

    def add(self, written: ExportedPartition) -> None:
        """Count a partition."""
        self.partitions += 1
        self.segments += written.segments
        self.records += written.records
        self.bytes += written.bytes


@dataclass(kw_only=True, slots=True)
class Export:
    """Writes a cluster's log as one broker's directory."""

    state: State
    read: Read
    folder: Path
    clock: Clock
    random: Random
    settings: ExportSettings = field(default_factory=ExportSettings)
    progress: Progress = lambda _bytes, _records: None
    report: ExportReport = field(default_factory=ExportReport)
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _starts: dict[TopicPartition, int] = field(default_factory=dict)
    _ids: dict[str, bytes] = field(default_factory=dict)

    @property
    def topics(self) -> list[Topic]:
        """The topics to write."""
        chosen = self.settings.topics
        return [
            topic
            for topic in self.state.topics
            if (chosen is None or topic.name in chosen) and topic.name not in RESERVED_TOPICS
        ]

    @property
    def total_bytes(self) -> int:
        """The approximate number of bytes to write."""
        return sum(partition.size_bytes for topic in self.topics for partition in topic.partitions)

    async def run(self) -> ExportReport:
        """Write the whole directory.

        Raises:
            ConfigError: the folder already exists, or a chosen topic has one of Kafka's internal
                names.
            Corrupt: a batch is damaged.
            Unavailable: the store or the cluster log cannot be reached.
        """
        if self.folder.exists():
            raise ConfigError(f"{self.folder}: already exists; name a folder that does not")
        self._leave_out_reserved()
        part = self.folder.with_name(f"{self.folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for topic in self.topics:
            await self._topic(part, topic)
        await asyncio.to_thread(self._finish, part)
        part.rename(self.folder)
        return self.report

    def _leave_out_reserved(self) -> None:
        """Skip topics with Kafka's internal names: the export writes these topics itself."""
        reserved = sorted({topic.name for topic in self.state.topics} & RESERVED_TOPICS)
        chosen = RESERVED_TOPICS & (self.settings.topics or frozenset())
        if chosen:
            raise ConfigError(
                f"topic {min(chosen)!r} cannot be exported: Kafka has a topic of its own there"
            )
        for name in reserved:
            log.warning("topic %r is left out: Kafka has a topic of its own under this name", name)
        self.report.left_out = reserved

    async def _topic(self, part: Path, topic: Topic) -> None:
        self._ids[topic.name] = topic.id
        self.report.topics += 1
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.index)
            writer = PartitionExporter(
                part / name.text, partition.log_start, self.settings.segment_bytes
            )
            end = partition.next_offset
            offset = partition.log_start
            while offset < end:
                stored = await self.read(
                    (topic.id, partition.index), partition, offset, _STEP_BYTES
                )
                data = b"".join(stored.parts)
                await asyncio.to_thread(writer.write, data)
                self.progress(len(data), 0)
                if stored.next_offset <= offset:
                    break
                offset = stored.next_offset
            written = await asyncio.to_thread(
                writer.finish, topic.id, _epochs(partition), max(end, writer.end_offset),
                _list_producers(partition),
            )  # fmt: skip
            self._note(name, partition.log_start, written)

    def _note(self, name: TopicPartition, log_start: int, written: ExportedPartition) -> None:
        self._ends[name] = written.end_offset
        if log_start:
            self._starts[name] = log_start
        self.report.add(written)

    # Files of the directory as a whole.

    def _finish(self, part: Path) -> None:
        now_ms = self.clock.now_ms()
        offsets = internal.offset_records(self.state)
        transactions = internal.transaction_records(self.state, now_ms)
        self._internal(part, CONSUMER_OFFSETS.name, offsets)
        self._internal(part, TRANSACTION_STATE.name, transactions)
        self.report.groups = sum(bool(group.offsets) for group in self.state.groups.by_id.values())
        self.report.transactional_ids = len(self.state.transactions.by_id)
        directory_id = self._new_id()
        node_id = self.settings.node_id
        write_metadata(
            part,
            node_id,
            directory_id,
            self.settings.controller,
            self._messages(directory_id),
            now_ms,
        )
        meta = MetaProperties(self.state.cluster_id, node_id, directory_id)
        (part / META_PROPERTIES).write_text(format_meta(meta))
        for file, ends in ((HIGH_WATERMARKS, self._ends), (RECOVERY_POINTS, self._ends)):
            (part / file).write_text(format_offsets(ends))
        (part / LOG_STARTS).write_text(format_offsets(self._starts))
        (part / CLEAN_SHUTDOWN).write_text(format_clean_shutdown(0))

    def _internal(self, part: Path, topic: str, rows: dict[int, list[Record]]) -> None:
        self._ids[topic] = self._new_id()
        for index in range(internal.PARTITIONS):
            name = TopicPartition(topic, index)
            writer = PartitionExporter(part / name.text, 0)
            for data in internal.pack_records(rows.get(index, [])):
                writer.write(data)
            epochs = [LoggedEpoch(0, 0)]
            written = writer.finish(self._ids[topic], epochs, writer.end_offset)
            self._ends[name] = written.end_offset

    def _messages(self, directory_id: bytes) -> Iterator[Message]:
        node = [self.settings.node_id]
        epochs = {
            TopicPartition(topic.name, partition.index): max(partition.leader_epoch, 0)
            for topic in self.topics
            for partition in topic.partitions
        }
        configs = {topic.name: topic.configs for topic in self.topics} | internal.CONFIGS
        for name, topic_id in self._ids.items():
            yield TopicRecord(name=name, topic_id=topic_id)
            for place in self._ends:
                if place.topic == name:
                    yield PartitionRecord(
                        partition_id=place.partition, topic_id=topic_id, replicas=node, isr=node,
                        removing_replicas=[], adding_replicas=[], leader=self.settings.node_id,
                        leader_epoch=epochs.get(place, 0), partition_epoch=0,
                        directories=[directory_id],
                    )  # fmt: skip
            for key, value in configs[name].items():
                yield ConfigRecord(resource_type=TOPIC, resource_name=name, name=key, value=value)
        if self.settings.topics is None:
            security = self.state.security
            self.report.access_rules = len(security.acls)
            self.report.users = len(security.scram)
            self.report.quotas = len(security.quotas)
            yield from records_of(security)
        if self.state.next_producer_id:
            yield ProducerIdsRecord(
                broker_id=self.settings.node_id, next_producer_id=self.state.next_producer_id
            )

    def _new_id(self) -> bytes:
        """Generate an id that Kafka accepts: its text must not begin with a hyphen."""
        while True:
            topic_id = random_uuid(self.random.token)
            if not uuid_text(topic_id).startswith("-") and any(topic_id[:15]):
                return topic_id


def _epochs(partition: Partition) -> list[LoggedEpoch]:
    epochs: list[LoggedEpoch] = []
    for epoch, start in partition.epochs:
        if epoch >= 0 and start <= partition.next_offset:
            epochs.append(LoggedEpoch(epoch, start))
    return epochs


def _list_producers(partition: Partition) -> list[ProducerEntry]:
    """Return the producers that the state knows; their batches may be deleted."""
    entries = []
    for producer_id, window in partition.producers.items():
        known = producers.describe(window)
        first = partition.ongoing.get(producer_id, NO_OFFSET)
        entries.append(
            ProducerEntry(
                producer_id,
                known.epoch,
                known.last_sequence,
                NO_OFFSET,
                0,
                known.time_ms,
                -1,
                first,
            )
        )
    return entries
