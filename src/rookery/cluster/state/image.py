"""The whole state as bytes, for snapshots: a message like any other.

A snapshot names the feature level, the entry it stands after and the digest there. Columns of rows
are written as they lie in memory, little-endian.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from rookery.cluster.state.brokers import Broker, Process
from rookery.cluster.state.groups import Group
from rookery.cluster.state.objects import Segment
from rookery.cluster.state.partition import Partition, column_bytes
from rookery.cluster.state.state import FEATURE_LEVEL, State
from rookery.cluster.state.topics import Topic
from rookery.cluster.state.txns import Transaction, TransactionState, Writer
from rookery.errors import Corrupt, ProtocolError
from rookery.records.crc import checksum
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import (
    BrokerId,
    GroupId,
    Host,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    Port,
    ProducerEpoch,
    ProducerId,
    Records,
    TopicId,
    TopicName,
    TransactionalId,
    Uuid,
    i8,
    i16,
    i32,
    i64,
)

_MAGIC: Final = b"RKSS"
_VERSION: Final = 0
_HEAD: Final = Struct(">hqq")  # the first fields of StateImage


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
    groups: list[GroupImage]
    transactions: list[TransactionImage]


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
    pins: list[PinImage]


class PinImage(Message):
    """A reader that holds off compaction."""

    pin_id: Uuid
    until_ms: i64


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
    ongoing: list[OngoingImage]
    aborted: Records


class OngoingImage(Message):
    """A producer with an open transaction, and where that begins."""

    producer_id: ProducerId
    first_offset: Offset


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


class GroupImage(Message):
    """A group."""

    group_id: GroupId
    coordinator: i64
    epoch: i32
    version: i64
    kind: str
    body: bytes
    staged: bytes
    persisted_ms: i64
    offsets: list[OffsetImage]


class OffsetImage(Message):
    """A committed offset, as `state.groups` packs it."""

    topic_id: TopicId
    partition: PartitionId
    packed: bytes


class TransactionImage(Message):
    """A transactional id, and what is open under it."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_producer_id: ProducerId
    last_producer_epoch: ProducerEpoch
    timeout_ms: i32
    state: i8
    partitions: list[PlaceImage]
    groups: list[PendingImage]
    started: i64
    started_ms: i64
    changed: i64
    changed_ms: i64


class PlaceImage(Message):
    """A partition that a transaction writes to."""

    topic_id: TopicId
    partition: PartitionId


class PendingImage(Message):
    """Offsets of a group that count when the transaction is committed."""

    group_id: GroupId
    offsets: list[OffsetImage]


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
    body = _checked(data)
    try:
        image = decode(StateImage, _VERSION, body)
    except ProtocolError as error:
        raise Corrupt(f"the snapshot cannot be read: {error}") from error
    if image.feature_level > FEATURE_LEVEL:
        raise Corrupt(
            f"the snapshot has feature level {image.feature_level}, this program knows "
            f"{FEATURE_LEVEL}; start a newer Rookery"
        )
    return _state(image)


class Head(NamedTuple):
    """What a state's image begins with."""

    feature_level: int
    applied: int
    digest: int


def read_head(data: Buffer) -> Head:
    """Check the bytes of a state, and say which it is, without building it.

    Raises:
        Corrupt: the bytes are damaged.
    """
    return Head(*_HEAD.unpack_from(_checked(data)))


def _checked(data: Buffer) -> memoryview:
    view = memoryview(data)
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise Corrupt("this is no snapshot of a Rookery cluster")
    try:
        outer = decode(_Checked, _VERSION, view[len(_MAGIC) :])
    except ProtocolError as error:
        raise Corrupt(f"the snapshot cannot be read: {error}") from error
    body = memoryview(outer.image)  # type: ignore[arg-type] # read as a view
    if checksum(body) != outer.checksum:
        raise Corrupt("the snapshot's checksum does not match: it is damaged")
    return body


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
        groups=[_group_image(group) for group in state.groups],
        transactions=[_transaction_image(one) for one in state.transactions],
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
        pins=[PinImage(pin_id=pin, until_ms=until) for pin, until in topic.pins.items()],
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
        ongoing=[
            OngoingImage(producer_id=producer_id, first_offset=first)
            for producer_id, first in partition.ongoing.items()
        ],
        aborted=column_bytes(partition.aborted),
    )


def _group_image(group: Group) -> GroupImage:
    return GroupImage(
        group_id=group.id,
        coordinator=group.coordinator,
        epoch=group.epoch,
        version=group.version,
        kind=group.kind,
        body=group.body,
        staged=group.staged,
        persisted_ms=group.persisted_ms,
        offsets=[
            OffsetImage(topic_id=topic_id, partition=partition, packed=packed)
            for topic_id, partitions in group.offsets.items()
            for partition, packed in partitions.items()
        ],
    )


def _transaction_image(one: Transaction) -> TransactionImage:
    return TransactionImage(
        transactional_id=one.id,
        producer_id=one.writer.producer_id,
        producer_epoch=one.writer.epoch,
        last_producer_id=one.last.producer_id,
        last_producer_epoch=one.last.epoch,
        timeout_ms=one.timeout_ms,
        state=one.state,
        partitions=[
            PlaceImage(topic_id=topic_id, partition=partition)
            for topic_id, partition in one.partitions
        ],
        groups=[
            PendingImage(
                group_id=group_id,
                offsets=[
                    OffsetImage(topic_id=topic_id, partition=partition, packed=packed)
                    for (topic_id, partition), packed in offsets.items()
                ],
            )
            for group_id, offsets in one.groups.items()
        ],
        started=one.started,
        started_ms=one.started_ms,
        changed=one.changed,
        changed_ms=one.changed_ms,
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
    for group in image.groups:
        state.groups.by_id[group.group_id] = _group(group)
    for transaction in image.transactions:
        state.transactions.add(_transaction(transaction))
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
    topic.pins = {bytes(pin.pin_id): pin.until_ms for pin in image.pins}
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
    partition.ongoing = {one.producer_id: one.first_offset for one in image.ongoing}
    _fill(partition.aborted, image.aborted)
    return partition


def _group(image: GroupImage) -> Group:
    group = Group(image.group_id)
    group.coordinator = image.coordinator
    group.epoch = image.epoch
    group.version = image.version
    group.kind = image.kind
    group.body = image.body
    group.staged = image.staged
    group.persisted_ms = image.persisted_ms
    for one in image.offsets:
        group.offsets.setdefault(one.topic_id, {})[one.partition] = one.packed
    return group


def _transaction(image: TransactionImage) -> Transaction:
    writer = Writer(image.producer_id, image.producer_epoch)
    one = Transaction(image.transactional_id, writer, image.timeout_ms)
    one.last = Writer(image.last_producer_id, image.last_producer_epoch)
    one.state = TransactionState(image.state)
    one.partitions = dict.fromkeys((place.topic_id, place.partition) for place in image.partitions)
    one.groups = {
        group.group_id: {(each.topic_id, each.partition): each.packed for each in group.offsets}
        for group in image.groups
    }
    one.started, one.started_ms = image.started, image.started_ms
    one.changed, one.changed_ms = image.changed, image.changed_ms
    return one


def _partitions(state: State) -> Iterator[Partition]:
    for topic in state.topics:
        yield from topic.partitions


def _count_rows(state: State, partition: Partition) -> None:
    """Rebuild what follows from the rows."""
    for object_id in partition.objects:
        if object_id:
            state.objects.add_row(object_id)
