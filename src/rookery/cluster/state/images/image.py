"""The encoding of the whole state for snapshots, as a message like any other.

A snapshot names the feature level, the last applied entry and the digest after it. Each subject of
the state has a file for its part: `topicimage.py`, `groupimage.py` and so on.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from rookery.cluster.state.images.brokerimage import (
    BrokerImage,
    ProcessImage,
    broker_images,
    fill_brokers,
    process_images,
)
from rookery.cluster.state.images.groupimage import GroupImage, group_image, read_group
from rookery.cluster.state.images.securityimage import (
    SecurityImage,
    read_security,
    security_image,
)
from rookery.cluster.state.images.sinkimage import (
    SinkImage,
    StagedImage,
    read_sinks,
    sink_images,
    staged_images,
)
from rookery.cluster.state.images.topicimage import (
    ConfigImage,
    TopicImage,
    config_images,
    read_topic,
    topic_image,
)
from rookery.cluster.state.images.txnimage import (
    TransactionImage,
    read_transaction,
    transaction_image,
)
from rookery.cluster.state.objects import SegmentName
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import FEATURE_LEVEL, State
from rookery.cluster.state.topics import Topics
from rookery.errors import Corrupt, ProtocolError
from rookery.records.crc import checksum
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import (
    Message,
    Offset,
    PartitionId,
    ProducerId,
    Records,
    TopicName,
    field,
    i16,
    i64,
)

_MAGIC: Final = b"RKSS"
_VERSION: Final = 0
_HEAD: Final = Struct(">hqq")  # the first fields of StateImage


class StateImage(Message, versions=range(1), flexible=0):
    """The state that brokers agree on, after one entry."""

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
    sinks: list[SinkImage] = field(tag=0, factory=list)
    staged: list[StagedImage] = field(tag=1, factory=list)
    security: list[SecurityImage] = field(tag=2, factory=list)


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


class ResourceImage(Message):
    """The settings of one broker, or of all."""

    name: str
    configs: list[ConfigImage]


class _CheckedImage(Message, versions=range(1), flexible=0):
    """The image and its checksum."""

    checksum: i64
    image: Records


def write_image(state: State) -> bytes:
    """Write the state."""
    image = encode_bytes(_image(state), _VERSION)
    return _MAGIC + encode_bytes(_CheckedImage(checksum=checksum(image), image=image), _VERSION)


def read_image(data: Buffer) -> State:
    """Decode a state that was encoded by `write_image`.

    Raises:
        Corrupt: the bytes are damaged, or a newer program wrote them.
    """
    body = _check(data)
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
    """The first fields of a state's image."""

    feature_level: int
    applied: int
    digest: int


def read_head(data: Buffer) -> Head:
    """Check the bytes of a state and return its head, without building the state.

    Raises:
        Corrupt: the bytes are damaged.
    """
    return Head(*_HEAD.unpack_from(_check(data)))


def _check(data: Buffer) -> memoryview:
    view = memoryview(data)
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise Corrupt("this is not a snapshot of a Rookery cluster")
    try:
        outer = decode(_CheckedImage, _VERSION, view[len(_MAGIC) :])
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
        brokers=broker_images(state.brokers),
        topics=[topic_image(topic) for topic in state.topics],
        broker_configs=[
            ResourceImage(name=name, configs=config_images(configs))
            for name, configs in state.broker_configs.items()
        ],
        objects=sorted(object_id for object_id, rows in state.objects.rows.items() if not rows),
        condemned=[
            CondemnedImage(object_id=object_id, entry=entry)
            for object_id, entry in state.objects.condemned.items()
        ],
        segments=[
            SegmentImage(object_id=object_id, **segment._asdict())
            for object_id, segment in state.objects.segments.items()
        ],
        retired_names=list(state.objects.retired_names),
        processes=process_images(state.brokers),
        groups=[group_image(group) for group in state.groups],
        transactions=[transaction_image(transaction) for transaction in state.transactions],
        sinks=sink_images(state.sinks),
        staged=staged_images(state.sinks),
        security=security_image(state.security),
    )


def _state(image: StateImage) -> State:
    state = State()
    state.feature_level = image.feature_level
    state.applied = image.applied
    state.topics = Topics(image.applied)
    state.digest = image.digest
    state.cluster_id = image.cluster_id
    state.next_producer_id = image.next_producer_id
    state.broker_configs = {
        resource.name: {config.name: config.value for config in resource.configs}
        for resource in image.broker_configs
    }
    state.objects.rows = dict.fromkeys(image.objects, 0)
    state.objects.condemned = {item.object_id: item.entry for item in image.condemned}
    state.objects.retired_names = dict.fromkeys(image.retired_names)
    state.objects.segments = {segment.object_id: _segment(segment) for segment in image.segments}
    fill_brokers(state.brokers, image.brokers, image.processes)
    for topic in image.topics:
        state.topics.add(read_topic(topic))
    for group in image.groups:
        state.groups.by_id[group.group_id] = read_group(group)
    for transaction in image.transactions:
        state.transactions.add(read_transaction(transaction))
    for restored in state.topics:
        for partition in restored.partitions:
            _count_rows(state, partition)
    state.sinks = read_sinks(image.sinks, image.staged)
    state.security = read_security(image.security)
    for object_id in state.sinks.staged:
        state.objects.add_row(object_id)  # held, as if a row lived in it
    return state


def _count_rows(state: State, partition: Partition) -> None:
    """Rebuild the row counts of objects from the rows."""
    for object_id in partition.objects:
        if object_id:
            state.objects.add_row(object_id)


def _segment(image: SegmentImage) -> SegmentName:
    return SegmentName(image.topic, image.partition, image.base_offset, image.is_plain)
