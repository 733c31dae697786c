"""Topics and records as any client makes them, for attacks that need some; kio writes the bytes."""

from __future__ import annotations

import datetime
import io
import uuid
from collections.abc import Mapping
from typing import Any

from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v9.request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kio.schema.produce.v9.response import ProduceResponse
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from tests.abuse.attack import Attacker, Door, header

LATEST = -1
NOW = i32Timedelta.parse(datetime.timedelta(0))
TIMEOUT = i32Timedelta.parse(datetime.timedelta(seconds=10))


def packed(request: Any) -> bytes:
    """Return a flexible request, header and all."""
    out = io.BytesIO()
    entity_writer(type(request))(out, request)
    return header(request.__api_key__, request.__version__, is_flexible=True) + out.getvalue()


def ask(door: Door | int, request: Any, answer: Any) -> Any:
    """Send a flexible request on a connection of its own; return its answer."""
    with Attacker(door) as line:
        return ask_on(line, request, answer)


def ask_on(line: Attacker, request: Any, answer: Any) -> Any:
    """Send a flexible request; return its answer."""
    frame = line.ask(packed(request))
    assert frame is not None, "the connection was closed"
    response, _ = entity_reader(answer)(frame, 5)
    return response


def create(
    door: Door | int, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> ErrorCode:
    """Ask for a topic."""
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(1),
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ),
    )
    answer = ask(
        door, CreateTopicsRequest(topics=(topic,), validate_only=False), CreateTopicsResponse
    )
    [created] = answer.topics
    assert created.name == name
    code: ErrorCode = created.error_code
    return code


def make_topic(door: Door | int, name: str, **configs: str) -> uuid.UUID:
    """Make a topic; return its id."""
    # Batches have times of years ago: retention would delete them while a slow test reads them.
    settings = {"retention_ms": "-1", **configs}
    code = create(door, name, configs={key.replace("_", "."): v for key, v in settings.items()})
    assert code in {ErrorCode.none, ErrorCode.topic_already_exists}
    [topic] = describe(door, [name])
    assert topic.topic_id is not None
    topic_id: uuid.UUID = topic.topic_id
    return topic_id


def describe(door: Door | int, names: list[str], *, make: bool = False) -> tuple[Any, ...]:
    """Ask for the metadata of topics."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=TopicName(name), topic_id=None) for name in names),
        allow_auto_topic_creation=make,
        include_topic_authorized_operations=False,
    )
    topics: tuple[Any, ...] = ask(door, request, MetadataResponse).topics
    return topics


def produce_request(topic: str, records: bytes) -> bytes:
    """Return a request that produces to partition 0, header and all."""
    data = PartitionProduceData(index=i32(0), records=Records(records))
    topic_data = TopicProduceData(name=TopicName(topic), partition_data=(data,))
    request = ProduceRequest(
        transactional_id=None, acks=i16(-1), timeout=TIMEOUT, topic_data=(topic_data,)
    )
    return packed(request)


def code_of_produce(frame: bytes) -> ErrorCode:
    """Return the one code of an answer to `produce_request`."""
    answer, _ = entity_reader(ProduceResponse)(frame, 5)
    [topic] = answer.responses
    [partition] = topic.partition_responses
    code: ErrorCode = partition.error_code
    return code


def produce(door: Door | int, topic: str, records: bytes) -> ErrorCode:
    """Produce to partition 0; return what the broker says."""
    with Attacker(door) as line:
        frame = line.ask(produce_request(topic, records))
    assert frame is not None, "the connection was closed"
    return code_of_produce(frame)


def fetch_request(
    topic: str,
    *,
    offset: int = 0,
    max_wait: i32Timedelta = NOW,
    min_bytes: int = 1,
    max_bytes: int = 1024,
) -> bytes:
    """Return a request for partition 0, header and all."""
    partition = FetchPartition(
        partition=i32(0), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes)
    )
    request = FetchRequest(
        max_wait=max_wait,
        min_bytes=i32(min_bytes),
        max_bytes=i32(max_bytes),
        isolation_level=i8(0),
        topics=(FetchTopic(topic=TopicName(topic), partitions=(partition,)),),
        rack_id="",
        forgotten_topics_data=(),
    )
    return packed(request)


def fetched(frame: bytes) -> bytes:
    """Return the batches of an answer to `fetch_request`."""
    answer, _ = entity_reader(FetchResponse)(frame, 5)
    [topic] = answer.responses
    [partition] = topic.partitions
    assert partition.error_code is ErrorCode.none
    return bytes(partition.records or b"")


def code_of_list_offsets(door: Door | int, topic: str, time_ms: int) -> ErrorCode:
    """Ask for the offset of a time in partition 0; return what the broker says."""
    code: ErrorCode = _list_offsets(door, topic, time_ms).error_code
    return code


def end_offset(door: Door | int, topic: str) -> int:
    """Return the offset that the next record of partition 0 will have."""
    offset: int = _list_offsets(door, topic, LATEST).offset
    return offset


def _list_offsets(door: Door | int, topic: str, time_ms: int) -> Any:
    partition = ListOffsetsPartition(
        partition_index=i32(0), current_leader_epoch=i32(-1), timestamp=i64(time_ms)
    )
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(partition,)),),
    )
    [answer] = ask(door, request, ListOffsetsResponse).topics
    return answer.partitions[0]
