"""Loads a directory as the state of a single-broker cluster, once, when the broker starts.

    __cluster_metadata ──► topics, settings, producer ids, access rules, users, quotas
    partitions         ──► rows, offsets, epochs, producers, aborted transactions
    __consumer_offsets, __transaction_state ──► groups and transactions

The disk of one broker of a larger cluster is treated the same way: it appears as the only broker
and leads its local partitions. Partitions on other disks have no leader.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from rookery.cluster.resources import resource_key
from rookery.cluster.state import aborts, producers
from rookery.cluster.state.aborts import AbortedTransaction
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import FEATURE_LEVEL, State
from rookery.cluster.state.topics import Topic
from rookery.formats.kraft.image import BROKER, CLIENT_METRICS, GROUP
from rookery.formats.kraft.topics import MetadataPartition
from rookery.formats.logfile.checkpoints import LoggedEpoch
from rookery.formats.logfile.replay import PartitionReplay
from rookery.logdir.accesscontrol import security_of
from rookery.logdir.directory import LogDirectory
from rookery.logdir.partition import PartitionLog
from rookery.logdir.segment import LogFileSegment
from rookery.logdir.server import coordinators
from rookery.logdir.server.openedsegment import OpenedSegment, open_segment
from rookery.logdir.server.rows import add_rows, rows_of
from rookery.logdir.server.segmentfiles import SegmentFiles
from rookery.logdir.writer.appendlog import AppendLog, HeldSegment
from rookery.logdir.writer.segmentfile import SegmentContents
from rookery.logdir.writer.smallfiles import cut, mark_deleted
from rookery.model.partition import TopicPartition

log = logging.getLogger(__name__)

Key = tuple[bytes, int]
"""Topic id and partition."""


@dataclass(slots=True)
class LoadedDirectory:
    """The loaded directory, ready to be served."""

    directory: LogDirectory
    node_id: int
    state: State
    files: SegmentFiles
    logs: dict[Key, AppendLog] = field(default_factory=dict)
    """The local partitions."""
    elsewhere: set[Key] = field(default_factory=set)
    """Partitions of the cluster that are not local."""
    opened: dict[Key, list[OpenedSegment]] = field(default_factory=dict)
    """Their segments, for repair."""
    beyond: dict[Key, int] = field(default_factory=dict)
    """Partitions with records after their high watermark, and their end offsets."""
    unled: list[Key] = field(default_factory=list)
    """Local partitions whose last leader was another broker, or none."""
    populated: dict[str, int] = field(default_factory=dict)
    """Groups that had members, and their generations."""
    now_ms: int = 0
    """The time of loading."""
    prepared: dict[str, bool] = field(default_factory=dict)
    """Transactions with a decided but unwritten end, and whether it is a commit."""


def load(directory: LogDirectory, node_id: int, now_ms: int) -> LoadedDirectory:
    """Build the state of a directory."""
    state = State()
    state.feature_level = FEATURE_LEVEL
    state.cluster_id = directory.meta.cluster_id if directory.meta is not None else ""
    state.next_producer_id = directory.image.next_producer_id
    loaded = LoadedDirectory(directory, node_id, state, SegmentFiles(), now_ms=now_ms)
    for name, topic_id, count in _topics(directory):
        _add_topic(loaded, name, topic_id, count)
    for (type_, resource), configs in directory.image.configs.items():
        if type_ in {BROKER, CLIENT_METRICS, GROUP}:
            state.broker_configs[resource_key(type_, resource)] = dict(configs)
    state.security = security_of(directory.image)
    seats = coordinators.load(state, directory)
    loaded.prepared, loaded.populated = seats.prepared, seats.populated
    return loaded


def _topics(directory: LogDirectory) -> Iterator[tuple[str, bytes, int]]:
    """Yield the topics in the metadata, then those that exist only as folders."""
    topics = directory.image.topics
    for topic in topics.by_name.values():
        yield topic.name, topic.topic_id, max(topic.partitions, default=-1) + 1
    counts: dict[str, int] = {}
    for name in directory.partitions:
        if name.topic not in topics.by_name:
            counts[name.topic] = max(counts.get(name.topic, 0), name.partition + 1)
    for number, (topic_name, count) in enumerate(counts.items(), 1):
        # Clients ask for topics by id, so a topic without an id gets one.
        yield topic_name, directory.topic_id(topic_name) or number.to_bytes(16, "big"), count


def _add_topic(loaded: LoadedDirectory, name: str, topic_id: bytes, count: int) -> None:
    image = loaded.directory.image
    topic = Topic(topic_id, name, replication_factor=1)
    for key, value in image.topic_configs(name).items():
        topic.configure(key, value)
    known = image.topics.by_id.get(topic_id)
    topic.partitions = [Partition(index) for index in range(count)]
    loaded.state.topics.add(topic)
    for partition in topic.partitions:
        placed = known.partitions.get(partition.index) if known is not None else None
        _add_partition(loaded, topic, partition, placed)


def _add_partition(
    loaded: LoadedDirectory, topic: Topic, partition: Partition, image: MetadataPartition | None
) -> None:
    key, name = (topic.id, partition.index), TopicPartition(topic.name, partition.index)
    partition.leader_epoch = image.leader_epoch if image is not None else 0
    disk = loaded.directory.partitions.get(name)
    if disk is None and (image is None or loaded.node_id not in image.replicas):
        loaded.elsewhere.add(key)
        return
    partition.leader = loaded.node_id
    if image is not None and image.leader != loaded.node_id:
        partition.leader_epoch += 1
        loaded.unled.append(key)
    folder = disk.folder if disk is not None else loaded.directory.paths[0] / name.text
    made = loaded.logs[key] = AppendLog(folder, name, topic.id, loaded.files.number)
    if disk is not None:
        _fill(loaded, topic, partition, made, disk)
    made.epochs = [LoggedEpoch(*epoch) for epoch in partition.epochs]
    _begin_epoch(partition)


def _begin_epoch(partition: Partition) -> None:
    """Start the leader epoch at the log end, unless records were already written in it."""
    last = partition.epochs[-1] if partition.epochs else None
    if last is not None and last[0] >= partition.leader_epoch:
        partition.leader_epoch = last[0]
        return
    partition.epochs.append((partition.leader_epoch, partition.next_offset))


def _fill(
    loaded: LoadedDirectory, topic: Topic, partition: Partition, made: AppendLog, disk: PartitionLog
) -> None:
    """Load a partition from its folder."""
    key = (topic.id, partition.index)
    opened = open_all(disk)
    loaded.opened[key] = opened
    end = disk.high_watermark
    if end < disk.log_end:
        loaded.beyond[key] = disk.log_end
        disk.log_end = end
    partition.log_start, partition.next_offset = disk.log_start, end
    # It is unknown whether compaction has removed records: there may be gaps anywhere.
    partition.cleaned_to = end
    epochs = _epochs_of(disk, opened)
    partition.epochs = [
        (epoch.epoch, epoch.start_offset) for epoch in epochs if epoch.start_offset < end
    ]
    held = adopt(loaded, made, opened, end)
    for at, file in enumerate(opened):
        after = opened[at + 1].segment.base_offset if at + 1 < len(opened) else end
        visible = file if after <= end and file.end_offset <= end else _cut(file, end)
        rows = rows_of(visible, held[at].object_id, min(after, end))
        add_rows(loaded.state, partition, [r for r in rows if r.end_offset > disk.log_start])
    if topic.is_append_time:
        partition.append_time = max((file.largest.timestamp for file in opened), default=-1)
    replay = _replay(disk)
    _set_producers(partition, replay)
    replay.aborted = []
    made.replay = replay
    if key in loaded.beyond:
        made.before_write = partial(_cut_off, made, opened, end)


def adopt(
    loaded: LoadedDirectory, made: AppendLog, opened: list[OpenedSegment], end: int
) -> list[HeldSegment]:
    """Continue a log after its existing segments."""
    held = [
        HeldSegment(
            file.segment.base_offset,
            file.size,
            file.largest.timestamp,
            loaded.files.number(file.segment.path),
        )
        for file in opened
    ]
    made.next_offset = made.recovery_point = end
    made.adopt(held, _make_contents(opened[-1]) if opened else None)
    return held


def open_all(disk: PartitionLog) -> list[OpenedSegment]:
    """Open all segments of a partition."""
    segments = disk.segments
    recovered = disk.checkpoints.recovery_point or 0
    opened = []
    for at, segment in enumerate(segments):
        stop = segments[at + 1].base_offset if at + 1 < len(segments) else 1 << 63
        is_trusted = disk.is_clean or stop <= recovered
        opened.append(open_segment(segment, is_trusted=is_trusted, stop=stop))
    return opened


def _cut_off(made: AppendLog, opened: list[OpenedSegment], end: int) -> None:
    """Cut off the records after the high watermark, since their offsets are about to be reused."""
    log.warning(
        "%s: records from offset %d on are set aside in files called .deleted and .cut: something "
        "else gets their offsets",
        made.folder,
        end,
    )
    numbers = {held.base_offset: held.object_id for held in made.held}
    kept: list[OpenedSegment] = []
    for file in opened:
        base = file.segment.base_offset
        if kept and base >= end:
            mark_deleted(file.segment.folder, base)
        elif file.end_offset <= end:
            kept.append(file)
        else:
            cut(file.segment.path, _cut(file, end).size)
            kept.append(open_segment(LogFileSegment(file.segment.folder, base), is_trusted=False))
    made.adopt(
        [
            HeldSegment(
                file.segment.base_offset,
                file.size,
                file.largest.timestamp,
                numbers[file.segment.base_offset],
            )
            for file in kept
        ],
        _make_contents(kept[-1])._replace(entries=0, times=0, last_time=-1),
    )


def _cut(opened: OpenedSegment, end: int) -> OpenedSegment:
    """Leave out the records after the high watermark."""
    pieces = [piece for piece in opened.pieces if piece.base_offset < end]
    if not pieces:
        return opened._replace(pieces=[], size=0)
    size = opened.size
    for header in opened.segment.headers(end - 1):
        if header.base_offset >= end:
            size = header.position
            break
    return opened._replace(pieces=pieces, size=size)


def _make_contents(opened: OpenedSegment) -> SegmentContents:
    return SegmentContents(
        opened.size, opened.largest, opened.entries, opened.times, opened.last_time
    )


def _epochs_of(disk: PartitionLog, opened: list[OpenedSegment]) -> list[LoggedEpoch]:
    """Return the leader epochs: those in the checkpoint, and those in the batches.

    Kafka writes the checkpoint some time after the first batch of an epoch, so a crash can lose
    some.
    """
    epochs = list(disk.epochs)
    every = [epoch for file in opened for epoch in file.epochs]
    if not epochs and not every:
        headers = (batch.header for batch in disk.batches())
        every = [
            LoggedEpoch(header.partition_leader_epoch, header.base_offset) for header in headers
        ]
    for epoch in every:
        if epoch.epoch >= 0 and (not epochs or epoch.epoch > epochs[-1].epoch):
            epochs.append(epoch)
    return epochs


def _replay(disk: PartitionLog) -> PartitionReplay:
    """Load producers as Kafka does: after a clean shutdown, no snapshot means no producers."""
    if disk.is_clean and not disk.snapshots:
        return PartitionReplay()
    return disk.replay()


def _set_producers(partition: Partition, replay: PartitionReplay) -> None:
    for producer_id, entry in replay.producers.items():
        window: bytes | None = None
        for batch in replay.batches.get(producer_id, ()):
            if batch.first_sequence >= 0:
                window = producers.remember(
                    window,
                    entry.epoch,
                    batch.first_sequence,
                    batch.last_offset - batch.base_offset + 1,
                    offset=batch.base_offset,
                    time_ms=entry.timestamp,
                )
        partition.producers[producer_id] = window or producers.close(
            None, entry.epoch, entry.timestamp
        )
    end = partition.next_offset
    partition.ongoing = {producer: first for producer, first in replay.open.items() if first < end}
    for gone in sorted(replay.aborted, key=lambda abort: abort.last_offset):
        if partition.log_start <= gone.last_offset < end:
            aborts.add(partition.aborted, AbortedTransaction(*gone))
