"""The whole state as bytes, for snapshots: a message like any other.

A snapshot names the feature level, the entry it stands after and the digest there. Columns of rows
are written as they lie in memory, little-endian.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Final

from rookery.cluster.state.brokers import Broker, Process
from rookery.cluster.state.objects import Segment
from rookery.cluster.state.partition import Partition, column_bytes
from rookery.cluster.state.state import FEATURE_LEVEL, State
from rookery.cluster.state.topics import Topic
from rookery.errors import Corrupt, ProtocolError
from rookery.records.crc import checksum
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import (
    BrokerId,
    Host,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    Port,
    ProducerId,
    Records,
    TopicId,
    TopicName,
    Uuid,
    i16,
    i64,
)

_MAGIC: Final = b"RKSS"
_VERSION: Final = 0


class StateImage(Message, versions=range(1), flexible=0):
    """Everything that brokers agree on, after one entry."""

    feature_level: i16
    applied: i64
    digest: i64
    cluster_id: str
    next_producer_id: ProducerId
    brokers: list[BrokerImage]
    topics: list[TopicImage]
    broker_configs: list[ResourceImage]
    objects: list[i64]  # that are known although nothing lives in them
    condemned: list[CondemnedImage]
    segments: list[SegmentImage]
    retired_names: list[TopicName]
    processes: list[ProcessImage]


class BrokerImage(Message):
    """A live broker."""

    node_id: BrokerId
    incarnation: i64
    last_sequence: i64
    stamp_ms: i64
    host: Host
    port: Port
    rack: str | None
    process_id: Uuid


class ProcessImage(Message):
    """A live process that is no broker."""

    incarnation: i64
    last_sequence: i64
    stamp_ms: i64
    purpose: str
    process_id: Uuid


class CondemnedImage(Message):
    """An object that is going to be deleted."""

    object_id: i64
    entry: i64


class SegmentImage(Message):
    """The name of a segment."""

    object_id: i64
    topic: TopicName
    partition: PartitionId
    base_offset: Offset
    is_plain: bool


class ConfigImage(Message):
    """One setting."""

    name: str
    value: str


class ResourceImage(Message):
    """The settings of one broker, or of all."""

    name: str
    configs: list[ConfigImage]


class TopicImage(Message):
    """A topic."""

    topic_id: TopicId
    name: TopicName
    replication_factor: i16
    configs: list[ConfigImage]
    partitions: list[PartitionImage]


class PartitionImage(Message):
    """A partition and its rows."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    epochs: list[EpochImage]
    log_start: Offset
    next_offset: Offset
    append_time: i64
    cleaned_to: Offset
    named_to: Offset
    columns: list[ColumnImage]
    producers: list[ProducerImage]


class ColumnImage(Message):
    """One column of the rows."""

    values: Records


class EpochImage(Message):
    """A leader epoch and where it began."""

    epoch: LeaderEpoch
    start: Offset


class ProducerImage(Message):
    """A producer and its window, as `state.producers` packs it."""

    producer_id: ProducerId
    window: bytes


class _Checked(Message, versions=range(1), flexible=0):
    """The image and its checksum."""

    checksum: i64
    image: Records


def write_image(state: State) -> bytes:
    """Write the state."""
    image = encode_bytes(_image(state), _VERSION)
    return _MAGIC + encode_bytes(_Checked(checksum=checksum(image), image=image), _VERSION)


def read_image(data: Buffer) -> State:
    """Read a state that was written by `write_image`.

    Raises:
        Corrupt: the bytes are damaged, or of a newer program.
    """
    view = memoryview(data)
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise Corrupt("this is no snapshot of a Rookery cluster")
    try:
        outer = decode(_Checked, _VERSION, view[len(_MAGIC) :])
        if checksum(outer.image) != outer.checksum:  # type: ignore[arg-type] # read as a view
            raise Corrupt("the snapshot's checksum does not match: it is damaged")
        image = decode(StateImage, _VERSION, outer.image)  # type: ignore[arg-type] # read as a view
    except ProtocolError as error:
        raise Corrupt(f"the snapshot cannot be read: {error}") from error
    if image.feature_level > FEATURE_LEVEL:
        raise Corrupt(
            f"the snapshot has feature level {image.feature_level}, this program knows "
            f"{FEATURE_LEVEL}; start a newer Rookery"
        )
    return _state(image)


def _image(state: State) -> StateImage:
    return StateImage(
        feature_level=state.feature_level,
        applied=state.applied,
        digest=state.digest,
        cluster_id=state.cluster_id,
        next_producer_id=state.next_producer_id,
        brokers=[
            _broker_image(state, broker) for _, broker in sorted(state.brokers.by_node.items())
        ],
        topics=[_topic_image(topic) for topic in state.topics],
        broker_configs=[
            ResourceImage(name=name, configs=_configs(configs))
            for name, configs in state.broker_configs.items()
        ],
        objects=sorted(one for one, rows in state.objects.rows.items() if not rows),
        condemned=[
            CondemnedImage(object_id=one, entry=entry)
            for one, entry in state.objects.condemned.items()
        ],
        segments=[
            SegmentImage(object_id=one, **segment._asdict())
            for one, segment in state.objects.segments.items()
        ],
        retired_names=list(state.objects.retired_names),
        processes=[_process_image(state, one) for one in state.brokers.processes.values()],
    )


def _broker_image(state: State, broker: Broker) -> BrokerImage:
    return BrokerImage(
        node_id=broker.node_id,
        incarnation=broker.incarnation,
        last_sequence=state.brokers.sequences[broker.incarnation],
        stamp_ms=state.brokers.stamps[broker.incarnation],
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        process_id=broker.process_id,
    )


def _process_image(state: State, process: Process) -> ProcessImage:
    return ProcessImage(
        incarnation=process.incarnation,
        last_sequence=state.brokers.sequences[process.incarnation],
        stamp_ms=state.brokers.stamps[process.incarnation],
        purpose=process.purpose,
        process_id=process.process_id,
    )


def _configs(configs: dict[str, str]) -> list[ConfigImage]:
    return [ConfigImage(name=name, value=value) for name, value in configs.items()]


def _topic_image(topic: Topic) -> TopicImage:
    return TopicImage(
        topic_id=topic.id,
        name=topic.name,
        replication_factor=topic.replication_factor,
        configs=_configs(topic.configs),
        partitions=[_partition_image(partition) for partition in topic.partitions],
    )


def _partition_image(partition: Partition) -> PartitionImage:
    return PartitionImage(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        epochs=[EpochImage(epoch=epoch, start=start) for epoch, start in partition.epochs],
        log_start=partition.log_start,
        next_offset=partition.next_offset,
        append_time=partition.append_time,
        cleaned_to=partition.cleaned_to,
        named_to=partition.named_to,
        columns=[ColumnImage(values=column_bytes(column)) for column in partition.columns],
        producers=[
            ProducerImage(producer_id=producer_id, window=window)
            for producer_id, window in partition.producers.items()
        ],
    )


def _fill(column: array[int], data: Records) -> None:
    column.frombytes(data)  # type: ignore[arg-type] # read as a view
    if sys.byteorder != "little":
        column.byteswap()


def _state(image: StateImage) -> State:
    state = State()
    state.feature_level = image.feature_level
    state.applied = image.applied
    state.digest = image.digest
    state.cluster_id = image.cluster_id
    state.next_producer_id = image.next_producer_id
    state.broker_configs = {
        resource.name: {config.name: config.value for config in resource.configs}
        for resource in image.broker_configs
    }
    state.objects.rows = dict.fromkeys(image.objects, 0)
    state.objects.condemned = {one.object_id: one.entry for one in image.condemned}
    state.objects.retired_names = dict.fromkeys(image.retired_names)
    state.objects.segments = {one.object_id: _segment(one) for one in image.segments}
    for process in image.processes:
        _add_process(state, process)
    for broker in image.brokers:
        _add_broker(state, broker)
    for topic in image.topics:
        state.topics.add(_topic(topic))
    for partition in _partitions(state):
        _count_rows(state, partition)
    return state


def _add_broker(state: State, image: BrokerImage) -> None:
    state.brokers.by_node[image.node_id] = Broker(
        image.node_id, image.incarnation, image.host, image.port, image.rack, image.process_id
    )
    state.brokers.sequences[image.incarnation] = image.last_sequence
    state.brokers.stamps[image.incarnation] = image.stamp_ms


def _add_process(state: State, image: ProcessImage) -> None:
    incarnation = image.incarnation
    state.brokers.processes[incarnation] = Process(incarnation, image.purpose, image.process_id)
    state.brokers.sequences[incarnation] = image.last_sequence
    state.brokers.stamps[incarnation] = image.stamp_ms


def _segment(image: SegmentImage) -> Segment:
    return Segment(image.topic, image.partition, image.base_offset, image.is_plain)


def _topic(image: TopicImage) -> Topic:
    topic = Topic(image.topic_id, image.name, image.replication_factor)
    for config in image.configs:
        topic.configure(config.name, config.value)
    topic.partitions = [_partition(index, part) for index, part in enumerate(image.partitions)]
    return topic


def _partition(index: int, image: PartitionImage) -> Partition:
    partition = Partition(index)
    partition.leader = image.leader
    partition.leader_epoch = image.leader_epoch
    partition.epochs = [(epoch.epoch, epoch.start) for epoch in image.epochs]
    partition.log_start = image.log_start
    partition.next_offset = image.next_offset
    partition.append_time = image.append_time
    partition.cleaned_to = image.cleaned_to
    partition.named_to = image.named_to
    for column, stored in zip(partition.columns, image.columns, strict=True):
        _fill(column, stored.values)
    if len({len(column) for column in partition.columns}) > 1:
        raise Corrupt("the snapshot has a partition whose columns differ in length")
    partition.size_bytes = sum(partition.sizes)
    partition.producers = {entry.producer_id: entry.window for entry in image.producers}
    return partition


def _partitions(state: State) -> Iterator[Partition]:
    for topic in state.topics:
        yield from topic.partitions


def _count_rows(state: State, partition: Partition) -> None:
    """Rebuild what follows from the rows."""
    for object_id in partition.objects:
        if object_id:
            state.objects.add_row(object_id)
