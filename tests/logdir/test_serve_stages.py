"""The stages of a broker over Kafka's files, step by step, over real sockets.

A client that knows nothing of ours would do the same: bytes out, bytes in, and a look at the files.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.errors import ErrorCode
from rookery.log.settings import Durability
from rookery.records import batches
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wire import Peer
from rookery.wire.codec import read_response, request_frame
from rookery.wire.message import ZERO_UUID, Api, Message, Parts
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from rookery.wire.messages.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from rookery.wire.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.logdir.made import FIRST_LOG, make_directory, message_batch, topic_id

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)

HELLO = ApiVersionsRequest(client_software_name="kafka-cli", client_software_version="0.1")


@contextmanager
def serving(folder: Path, durability: Durability = "os") -> Iterator[ServedBroker]:
    settings = BrokerSettings(log_dir=str(folder), durability=durability)
    with ServedBroker(folder.parent / "unused", settings) as broker:
        yield broker


def parts_of(api: Api[Req, Res], version: int, request: Req, number: int) -> bytes:
    """Write a request as it goes over the wire, its length first."""
    return b"".join(request_frame(api, version, number, "kafka-cli", request))


async def ask(port: int, api: Api[Req, Res], version: int, request: Req) -> Res:
    """Ask on a connection of its own; the answer must be all there, and nothing behind it."""
    number = secrets.randbelow(2**31)
    peer = await Peer.connect(port)
    peer.write(parts_of(api, version, request, number))
    frame = await peer.read_frame()
    await peer.close()
    assert frame[:4] == number.to_bytes(4, "big")
    return read_response(api, version, memoryview(frame))


def versions(response: ApiVersionsResponse) -> dict[int, range]:
    return {key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys}


# Sockets and ApiVersions: vi6, nv3, wa6, nc5, pv1, nh4, sk0.


async def test_correlation_id_is_returned(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs")) as broker:
        peer = await Peer.connect(broker.port)
        for number in (7, secrets.randbelow(2**31)):
            peer.write(parts_of(API_VERSIONS, 4, HELLO, number))
            assert (await peer.read_frame())[:4] == number.to_bytes(4, "big")
        await peer.close()


async def test_unknown_version_is_answered_in_version_0(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs")) as broker:
        payload = bytearray(parts_of(API_VERSIONS, 4, HELLO, 7))
        payload[6:8] = (1000 + secrets.randbelow(1000)).to_bytes(2, "big")
        peer = await Peer.connect(broker.port)
        peer.write(payload)
        answer = await peer.read_frame()
        await peer.close()
        assert answer[:6] == (7).to_bytes(4, "big") + (35).to_bytes(2, "big")
        response = read_response(API_VERSIONS, 0, memoryview(answer))
        assert response.error_code is ErrorCode.UNSUPPORTED_VERSION


async def test_api_versions_lists_served_apis(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs")) as broker:
        response = await ask(broker.port, API_VERSIONS, 4, HELLO)
        served = versions(response)
        assert response.error_code is ErrorCode.NONE
        assert 4 in served[18]
        # yk1, gs0, xz1
        assert 0 in served[75]
        assert 16 in served[1]
        assert 11 in served[0]


async def test_several_requests_are_answered_on_one_connection(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs")) as broker:
        peer = await Peer.connect(broker.port)
        for number in range(5):
            peer.write(parts_of(API_VERSIONS, 4, HELLO, number))
        for number in range(5):
            assert (await peer.read_frame())[:4] == number.to_bytes(4, "big")
        await peer.close()


async def test_answers_of_several_connections_can_be_read_in_reverse(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs")) as broker:
        peers = await asyncio.gather(*(Peer.connect(broker.port) for _ in range(4)))
        for number, peer in enumerate(peers):
            peer.write(parts_of(API_VERSIONS, 4, HELLO, number))
        for number, peer in reversed(list(enumerate(peers))):
            assert (await peer.read_frame())[:4] == number.to_bytes(4, "big")
            await peer.close()


# DescribeTopicPartitions: vt6, ea7, ku4, wq2.


async def describe(port: int, *names: str) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=10
    )
    return await ask(port, DESCRIBE_TOPIC_PARTITIONS, 0, request)


async def test_unknown_topic_is_described_as_unknown(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs", {"here": [[]]})) as broker:
        response = await describe(broker.port, "unknown-topic-qux")
        [topic] = response.topics
        assert topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (topic.name, topic.topic_id) == ("unknown-topic-qux", ZERO_UUID)
        assert topic.partitions == []
        assert response.next_cursor is None


async def test_topics_are_described_in_name_order(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"quz": [[]], "bar": [[], []]})
    with serving(folder) as broker:
        response = await describe(broker.port, "quz", "bar")
        assert [topic.name for topic in response.topics] == ["bar", "quz"]
        assert [topic.topic_id for topic in response.topics] == [topic_id(2), topic_id(1)]
        assert [len(topic.partitions) for topic in response.topics] == [2, 1]
        for topic in response.topics:
            assert topic.error_code is ErrorCode.NONE
            assert [part.partition_index for part in topic.partitions] == list(
                range(len(topic.partitions))
            )
            assert {part.error_code for part in topic.partitions} == {ErrorCode.NONE}
            assert {part.leader_id for part in topic.partitions} == {1}
        assert response.next_cursor is None


# Fetch: dh6, hn6, cm4, eg2, fd8.


def fetching(*ids: bytes) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52_428_800,
        session_id=0,
        session_epoch=0,
        topics=[
            FetchTopic(
                topic_id=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_048_576)
                ],
            )
            for topic in ids
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


async def fetch(port: int, *ids: bytes) -> FetchResponse:
    return await ask(port, FETCH, 16, fetching(*ids))


def bytes_of(data: PartitionData) -> bytes:
    records = data.records
    return b"".join(records) if isinstance(records, Parts) else bytes(records or b"")


async def test_fetch_without_topics_is_answered(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs", {"here": [[]]})) as broker:
        response = await fetch(broker.port)
        assert (response.throttle_time_ms, response.error_code) == (0, ErrorCode.NONE)
        assert response.responses == []


async def test_fetch_of_an_unknown_topic_is_refused(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs", {"here": [[]]})) as broker:
        [topic] = (await fetch(broker.port, topic_id(99))).responses
        [part] = topic.partitions
        assert topic.topic_id == topic_id(99)
        assert (part.partition_index, part.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_fetch_of_an_empty_topic_returns_nothing(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs", {"empty": [[]]})) as broker:
        [topic] = (await fetch(broker.port, topic_id(1))).responses
        [part] = topic.partitions
        assert (part.partition_index, part.error_code) == (0, ErrorCode.NONE)
        assert bytes_of(part) == b""


async def test_batches_are_returned_as_stored(tmp_path: Path) -> None:
    values = {"one": [[b"Hello Universe!"]], "four": [[b"a", b"b", b"c", b"d"]]}
    folder = make_directory(tmp_path / "logs", values)
    with serving(folder) as broker:
        for number, name in enumerate(values, 1):
            [topic] = (await fetch(broker.port, topic_id(number))).responses
            [part] = topic.partitions
            assert part.error_code is ErrorCode.NONE
            assert bytes_of(part) == (folder / f"{name}-0" / FIRST_LOG).read_bytes()
            assert part.high_watermark == len(values[name][0])


# Produce: zf2, gg1, ls8, yd8, ct4, ov0.


def producing(values: dict[str, dict[int, bytes]]) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=0,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=message_batch(value))
                    for index, value in parts.items()
                ],
            )
            for name, parts in values.items()
        ],
    )


async def produce(port: int, values: dict[str, dict[int, bytes]]) -> ProduceResponse:
    return await ask(port, PRODUCE, 11, producing(values))


def check_refused(part: PartitionProduceResponse) -> None:
    assert part.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (part.base_offset, part.log_append_time_ms, part.log_start_offset) == (-1, -1, -1)


def check_written(folder: Path, name: str, part: PartitionProduceResponse, value: bytes) -> None:
    assert part.error_code is ErrorCode.NONE
    assert (part.base_offset, part.log_append_time_ms, part.log_start_offset) == (0, -1, 0)
    data = (folder / f"{name}-{part.index}" / FIRST_LOG).read_bytes()
    [header] = batches.verify(data)
    [sent] = batches.verify(message_batch(value))
    assert header.crc == sent.crc
    assert header.base_offset == 0


async def test_produce_to_an_unknown_partition_is_refused(tmp_path: Path) -> None:
    with serving(make_directory(tmp_path / "logs", {"here": [[]]})) as broker:
        for name, index in (("here", 7), ("nowhere", 0)):
            [topic] = (await produce(broker.port, {name: {index: b"value"}})).responses
            [part] = topic.partition_responses
            assert (topic.name, part.index) == (name, index)
            check_refused(part)


async def test_produced_batch_is_in_the_file_before_the_answer(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"single": [[]]})
    with serving(folder) as broker:
        [topic] = (await produce(broker.port, {"single": {0: b"Hello"}})).responses
        [part] = topic.partition_responses
        check_written(folder, "single", part, b"Hello")


@pytest.mark.parametrize("durability", ["os", "disk"])
async def test_durability_decides_whether_the_answer_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    folder = make_directory(tmp_path / "logs", {"single": [[]]})
    synced: list[Path] = []
    sync = os.fdatasync

    def watched(fd: int) -> None:
        sync(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())

    with serving(folder, durability) as broker:
        monkeypatch.setattr(os, "fdatasync", watched)
        await produce(broker.port, {"single": {0: b"Hello"}})
        assert (folder / "single-0" / FIRST_LOG in synced) == (durability == "disk")


async def test_produce_to_partitions_of_several_topics_is_written(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"wide": [[], [], [], []], "other": [[]]})
    values = {
        "wide": {index: f"value {index}".encode() for index in range(4)},
        "other": {0: b"another"},
    }
    with serving(folder) as broker:
        response = await produce(broker.port, values)
        assert [topic.name for topic in response.responses] == list(values)
        for topic in response.responses:
            parts = topic.partition_responses
            assert [part.index for part in parts] == list(values[topic.name])
            for part in parts:
                check_written(folder, topic.name, part, values[topic.name][part.index])
        [partition] = (await fetch(broker.port, topic_id(2))).responses[0].partitions
        assert b"another" in bytes_of(partition)


async def test_missing_partition_folder_is_created(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"lost": [[]]})
    for path in (folder / "lost-0").iterdir():
        path.unlink()
    (folder / "lost-0").rmdir()
    with serving(folder) as broker:
        [topic] = (await produce(broker.port, {"lost": {0: b"found"}})).responses
        check_written(folder, "lost", topic.partition_responses[0], b"found")
    text = (folder / "lost-0" / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ"
