"""Topics whose batches are exactly as a test wants them: times, sizes, codecs, leaders.

    with Logs(kafka.bootstrap) as logs:
        topic = logs.create("birds", partitions=2)
        logs.write(topic, 0, rows([NOON, NOON + 1]))

Everything is sent as raw requests to the partitions' leaders, one batch a partition and request,
so that the log that a reader finds is known to the byte.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from rookery.errors import ApiError, ErrorCode
from rookery.records.columns import encode
from rookery.records.compression import find_codec
from rookery.records.writing import WriteSettings
from rookery.testing.servedbroker import ask
from rookery.wire.codec import read_response, request_frame
from rookery.wire.message import Api, Message
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

NOON: Final = 1_767_268_800_000
"""2026-01-01T12:00:00Z, the start of the times in most tests."""
_TIMEOUT: Final = 90.0
_KEPT: Final = {"retention.ms": "-1", "max.message.bytes": "20000000"}
_numbers = count(1)
Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


class Logs:
    """Makes topics and appends batches, on any Kafka."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._leaders: dict[tuple[str, int], int] = {}
        self._hosts: dict[int, str] = {}
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._sockets.values():
            connection.close()

    def create(
        self,
        stem: str,
        partitions: int,
        *,
        leaders: Sequence[int] = (),
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Make a topic with a name of its own; `leaders` are the brokers of its partitions."""
        name = f"{stem}-{next(_numbers)}"
        places = [
            CreatableReplicaAssignment(partition_index=n, broker_ids=[node])
            for n, node in enumerate(leaders)
        ]
        settings = {**_KEPT, **(config or {})}
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if places else partitions,
            replication_factor=-1 if places else 1,
            assignments=places,
            configs=[
                CreatableTopicConfig(name=key, value=value) for key, value in settings.items()
            ],
        )
        answer = ask(self._first, CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic]))
        _check(answer.topics[0].error_code, answer.topics[0].error_message)
        self._find_leaders(name, partitions)
        return name

    def leader(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition."""
        return self._leaders[topic, partition]

    def append(self, topic: str, batches: Mapping[int, bytes | bytearray]) -> None:
        """Append one batch to each partition that is named."""
        left = dict(batches)
        while left:
            by_leader: dict[int, list[PartitionProduceData]] = {}
            for partition, batch in left.items():
                data = PartitionProduceData(index=partition, records=batch)
                by_leader.setdefault(self.leader(topic, partition), []).append(data)
            for leader, rows in by_leader.items():
                for done in self._append(leader, TopicProduceData(name=topic, partition_data=rows)):
                    del left[done]

    def write(self, topic: str, partition: int, rows: pa.RecordBatch, size: int = 500) -> None:
        """Append rows in batches of `size` rows."""
        for start in range(0, rows.num_rows, size):
            self.append(topic, {partition: pack_rows(rows.slice(start, size))})

    @property
    def _first(self) -> str:
        return self.bootstrap.partition(",")[0]

    def _append(self, leader: int, data: TopicProduceData) -> list[int]:
        """Send the batches of one leader; return the partitions that have stored them."""
        request = ProduceRequest(acks=-1, timeout_ms=int(_TIMEOUT * 1000), topic_data=[data])
        answer = self._call(self._hosts[leader], PRODUCE, 9, request)
        done = []
        for row in answer.responses[0].partition_responses:
            # Metadata may name a leader before it knows that it leads.
            if not row.error_code.retriable:
                _check(row.error_code, row.error_message)
                done.append(row.index)
        return done

    def _find_leaders(self, topic: str, partitions: int) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        leaders: dict[tuple[str, int], int] = {}
        # A new topic has no leaders for a moment.
        while len(leaders) < partitions:
            answer = ask(self._first, METADATA, 9, request)
            self._hosts |= {row.node_id: f"{row.host}:{row.port}" for row in answer.brokers}
            leaders = {
                (topic, row.partition_index): row.leader_id
                for row in answer.topics[0].partitions
                if row.leader_id in self._hosts
            }
        self._leaders |= leaders

    def _call(self, leader: str, api: Api[Req, Res], version: int, request: Req) -> Res:
        if leader not in self._sockets:
            host, _, port = leader.rpartition(":")
            self._sockets[leader] = socket.create_connection((host, int(port)), _TIMEOUT)
        connection = self._sockets[leader]
        connection.sendall(b"".join(request_frame(api, version, 1, "logs", request)))
        with connection.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            return read_response(api, version, stream.read(size))


def rows(times: Sequence[int], value: bytes = b"%d", key: bytes | None = b"%d") -> pa.RecordBatch:
    """Make rows at these times; `%d` in key and value is the row's number."""
    columns: dict[str, pa.Array[Any]] = {
        "key": pa.array([_number(key, n) for n in range(len(times))], pa.binary()),
        "value": pa.array([_number(value, n) for n in range(len(times))], pa.binary()),
        "timestamp": pa.array(times, pa.int64()).cast(pa.timestamp("ms", "UTC")),
    }
    return pa.record_batch(columns)


def pack_rows(batch: pa.RecordBatch, codec: str = "none") -> bytearray:
    """Return rows as one batch of Kafka's."""
    [made] = encode(batch, WriteSettings(codec=find_codec(codec), max_batch_bytes=2**31 - 1))
    return made


def _check(code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, message or code.sentence)


def _number(pattern: bytes | None, number: int) -> bytes | None:
    return pattern % number if pattern is not None and b"%d" in pattern else pattern
