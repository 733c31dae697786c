"""Topics with their partitions, rows and settings in a state's image.

Columns of rows are encoded as they are in memory, little-endian.
"""

from __future__ import annotations

import sys
from array import array

from rookery.cluster.events.pinevents import PinStart
from rookery.cluster.state.partition import Partition, column_bytes
from rookery.cluster.state.topics import Pin, Topic
from rookery.errors import Corrupt
from rookery.wire.message import (
    BrokerId,
    LeaderEpoch,
    Message,
    Offset,
    ProducerId,
    Records,
    TopicId,
    TopicName,
    Uuid,
    field,
    i16,
    i64,
)


class TopicImage(Message):
    """A topic with its settings and partitions."""

    topic_id: TopicId
    name: TopicName
    replication_factor: i16
    configs: list[ConfigImage]
    partitions: list[PartitionImage]
    pins: list[PinImage]


class ConfigImage(Message):
    """One setting."""

    name: str
    value: str


class PinImage(Message):
    """A reader that blocks compaction."""

    pin_id: Uuid
    until_ms: i64
    starts: list[PinStart] = field(tag=0, factory=list)


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


class EpochImage(Message):
    """A leader epoch and where it began."""

    epoch: LeaderEpoch
    start: Offset


class ColumnImage(Message):
    """One column of the rows."""

    values: Records


class ProducerImage(Message):
    """A producer and its window, as `state.producers` packs it."""

    producer_id: ProducerId
    window: bytes


class OngoingImage(Message):
    """A producer with an open transaction, and where that begins."""

    producer_id: ProducerId
    first_offset: Offset


def topic_image(topic: Topic) -> TopicImage:
    """Write a topic."""
    return TopicImage(
        topic_id=topic.id,
        name=topic.name,
        replication_factor=topic.replication_factor,
        configs=config_images(topic.configs),
        partitions=[_partition_image(partition) for partition in topic.partitions],
        pins=[_pin_image(key, pin) for key, pin in topic.pins.items()],
    )


def _pin_image(pin_id: bytes, pin: Pin) -> PinImage:
    starts = [PinStart(partition=index, offset=offset) for index, offset in pin.starts.items()]
    return PinImage(pin_id=pin_id, until_ms=pin.until_ms, starts=starts)


def _read_pin(image: PinImage) -> Pin:
    return Pin(image.until_ms, {start.partition: start.offset for start in image.starts})


def config_images(configs: dict[str, str]) -> list[ConfigImage]:
    """Write settings."""
    return [ConfigImage(name=name, value=value) for name, value in configs.items()]


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


def read_topic(image: TopicImage) -> Topic:
    """Read a topic.

    Raises:
        Corrupt: the rows of a partition are not whole.
    """
    topic = Topic(image.topic_id, image.name, image.replication_factor)
    for config in image.configs:
        topic.configure(config.name, config.value)
    topic.partitions = [_read_partition(index, part) for index, part in enumerate(image.partitions)]
    topic.pins = {bytes(pin.pin_id): _read_pin(pin) for pin in image.pins}
    return topic


def _read_partition(index: int, image: PartitionImage) -> Partition:
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
    partition.ongoing = {txn.producer_id: txn.first_offset for txn in image.ongoing}
    _fill(partition.aborted, image.aborted)
    return partition


def _fill(column: array[int], data: Records) -> None:
    column.frombytes(data)  # type: ignore[arg-type] # read as a view
    if sys.byteorder != "little":
        column.byteswap()
