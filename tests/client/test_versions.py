"""The choice of versions: the highest in common, and at least the lowest that is sufficient."""

from __future__ import annotations

import asyncio

import pytest

from rookery.client.client import Client
from rookery.client.connect.versions import Versions
from rookery.client.settings import ClientSettings, ProducerSettings
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import EARLIEST, LATEST, CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record
from rookery.testing.kafka import KafkaServer
from rookery.wire.catalog import apis
from rookery.wire.codec import peek, response_frame
from rookery.wire.frame import FrameSplitter
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.list_offsets import LIST_OFFSETS
from rookery.wire.messages.metadata import METADATA, MetadataResponse, MetadataResponseBroker
from rookery.wire.messages.produce import PRODUCE

# The lowest that Kafka 4 accepts, and whose batches are of magic 2.
FLOORS = {0: 3, 1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 10: 0, 15: 0, 16: 0, 18: 0, 19: 2, 20: 1}


def test_highest_common_version_is_chosen() -> None:
    versions = Versions("b:1", {1: (4, 11), 2: (1, 99), 3: (0, 5)}, {3: 2})

    assert versions.choose(FETCH) == 11
    assert versions.choose(FETCH, highest=7) == 7
    assert versions.choose(LIST_OFFSETS) == LIST_OFFSETS.versions[-1]
    assert versions.choose(METADATA) == 2


def test_missing_common_version_is_reported() -> None:
    versions = Versions("b:1", {1: (0, 3), 0: (20, 25)}, {})

    with pytest.raises(ApiError, match=r"b:1 speaks Fetch 0 to 3, this client 4 to 18") as caught:
        versions.choose(FETCH, lowest=4)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError, match=r"b:1 speaks Produce 20 to 25"):
        versions.choose(PRODUCE)
    with pytest.raises(ApiError, match=r"b:1 does not offer Metadata"):
        versions.choose(METADATA)


def caps() -> list[dict[int, int]]:
    """Cap every API at its lowest version, and at some in between."""
    lowest = {key: FLOORS.get(key, api.versions.start) for key, api in apis().items()}
    middle = {key: max(low, (low + apis()[key].versions[-1]) // 2) for key, low in lowest.items()}
    return [lowest, middle, {0: 12, 1: 12}, {3: 9}]


@pytest.mark.parametrize("highest", caps(), ids=["lowest", "middle", "by name", "no topic ids"])
async def test_old_versions_give_the_same_results(
    kafka: KafkaServer, topic: str, highest: dict[int, int]
) -> None:
    settings = ClientSettings(bootstrap=kafka.bootstrap, max_versions=highest)
    place, group = TopicPartition(topic, 2), f"{topic}-group"
    async with Client(settings) as client:
        async with client.producer(ProducerSettings(compression="lz4")) as producer:
            for number in range(100):
                await producer.send(topic, Record(b"k", b"%d" % number), 2)
        values = [int(record.value or b"") async for record in client.read(topic, 2)]
        assert values == list(range(100))
        assert (await client.offsets.find({place: EARLIEST}))[place].offset == 0
        assert (await client.offsets.find({place: LATEST}))[place].offset == 100
        await client.groups.commit_offsets(group, {place: 42})
        committed = await client.groups.committed_offsets(group, [place])
        assert committed[place].offset == CommittedOffset(42).offset
        assert (await client.groups.describe(group)).state == "Empty"
        await client.groups.delete(group)
        await client.create_topic(f"{topic}-more", 3, 1)
        await client.admin.create_partitions(f"{topic}-more", 4)
        assert len((await client.topic(f"{topic}-more")).partitions) == 4
        await client.delete_topic(f"{topic}-more")


class OldBroker(asyncio.Protocol):
    """Knows no newer ApiVersions than one, and no more than ApiVersions and Metadata."""

    newest = 1
    asked: list[tuple[int, int]]

    def __init__(self) -> None:
        self._splitter = FrameSplitter(10_000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        while data:
            room = self._splitter.buffer()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self._splitter.note_received(size)
            data = data[size:]
            while (frame := self._splitter.take()) is not None:
                self._transport.writelines(self._answer(*peek(frame)))

    def _answer(self, key: int, version: int, number: int) -> list[bytes | bytearray | memoryview]:
        self.asked.append((key, version))
        if key == METADATA.key:
            port = self._transport.get_extra_info("sockname")[1]
            broker = MetadataResponseBroker(node_id=9, host="127.0.0.1", port=port)
            return response_frame(
                METADATA, version, number, MetadataResponse(brokers=[broker], topics=[])
            )
        rows = [
            ApiVersion(api_key=18, min_version=0, max_version=self.newest),
            ApiVersion(api_key=3, min_version=0, max_version=2),
        ]
        if version > self.newest:
            answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)
            return response_frame(API_VERSIONS, 0, number, answer)
        answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=rows)
        return response_frame(API_VERSIONS, version, number, answer)


class OlderBroker(OldBroker):
    """Answers an unknown version without a word about which it knows, as before Kafka 2.4."""

    def _answer(self, key: int, version: int, number: int) -> list[bytes | bytearray | memoryview]:
        if key == API_VERSIONS.key and version > self.newest:
            self.asked.append((key, version))
            answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
            return response_frame(API_VERSIONS, 0, number, answer)
        return super()._answer(key, version, number)


@pytest.mark.parametrize(("broker", "second"), [(OldBroker, 1), (OlderBroker, 0)])
async def test_broker_with_only_old_api_versions_is_supported(
    broker: type[OldBroker], second: int
) -> None:
    broker.asked = []
    server = await asyncio.get_running_loop().create_server(broker, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        async with Client(f"{host}:{port}") as client:
            cluster = await client.admin.describe_cluster()
    assert [node.id for node in cluster.brokers] == [9]
    assert broker.asked == [(18, API_VERSIONS.versions[-1]), (18, second), (3, 2)]
