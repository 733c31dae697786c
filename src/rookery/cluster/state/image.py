"""The whole state as bytes, for snapshots: a message like any other.

A snapshot names the feature level, the entry it stands after and the digest there. Columns of rows
are written as they lie in memory, little-endian.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Final

from rookery.cluster.state.brokers import Broker
from rookery.cluster.state.partition import Partition
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
    objects: list[i64]  # journals that are known although nothing lives in them


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
        objects=sorted(object_id for object_id, rows in state.objects.items() if not rows),
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
        columns=[ColumnImage(values=_column(column)) for column in partition.columns],
        producers=[
            ProducerImage(producer_id=producer_id, window=window)
            for producer_id, window in partition.producers.items()
        ],
    )


def _column(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        return values.tobytes()
    swapped = array(values.typecode, values)
    swapped.byteswap()
    return swapped.tobytes()


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
    state.objects = dict.fromkeys(image.objects, 0)
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
    for object_id, base in zip(partition.objects, partition.base_offsets, strict=True):
        if object_id:
            state.objects[object_id] = state.objects.get(object_id, 0) + 1
        if object_id < 0:
            state.payloads.setdefault(object_id, []).append((partition, base))
