"""Frames that real clients and a real Kafka sent each other: read to the last byte, written back.

tests/golden/frames.json was recorded on 2026-11-15 with `python -m tests.golden.record`: one
Apache Kafka 4.3.1 (broker and controller), its own tools, librdkafka 2.16.0 (confluent-kafka
2.16.1), kafka-python 3.0.12 (also as with older brokers) and aiokafka 0.14.0, all through a relay.
For each API, version and side it holds a few frames of at most 4 KB, each with the client that sent
or received it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rookery.errors import ErrorCode, ProtocolError
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.recordcodec import read
from rookery.wire import _twin
from rookery.wire.buffer import Buffer
from rookery.wire.catalog import apis
from rookery.wire.codec import (
    ResponseHeader,
    correlation_id,
    decode_at,
    read_header,
    read_request,
    read_response,
    request_frame,
    response_frame,
    response_header_version,
    table_of,
)
from rookery.wire.message import ZERO_UUID, Api, Message
from rookery.wire.protocols.consumer import read_assignment, read_subscription

FILE = Path(__file__).parents[1] / "golden" / "frames.json"
TOPIC, SOURCE = "golden", "golden-source"

# librdkafka ends this one request with a section of tagged fields too many, a zero byte, which
# Kafka does not look at.
STRAY = b"\x00"
STRAYS = {("AlterUserScramCredentials", "request", "librdkafka 2.16.0")}


class Golden(NamedTuple):
    """One recorded frame, without its length."""

    api: Api[Any, Any]
    version: int
    side: str
    client: str
    frame: bytes

    @property
    def message(self) -> type[Message]:
        message: type[Message] = getattr(self.api, self.side)
        return message

    @property
    def start(self) -> int:
        """Where the body begins."""
        if self.side == "request":
            return read_header(self.api, self.frame)[1]
        version = response_header_version(self.api, self.version)
        return decode_at(ResponseHeader, version, self.frame, 0)[1]

    def read(self) -> Any:
        if self.side == "request":
            return read_request(self.api, self.frame)[1]
        return read_response(self.api, self.version, self.frame)

    def write(self, body: Message) -> list[Buffer]:
        if self.side == "response":
            return response_frame(self.api, self.version, correlation_id(self.frame), body)
        header, _ = read_header(self.api, self.frame)
        return request_frame(self.api, self.version, header.correlation_id, header.client_id, body)


def load() -> list[Golden]:
    return [
        Golden(
            apis()[entry["key"]],
            entry["version"],
            entry["side"],
            entry["client"],
            bytes.fromhex(entry["frame"]),
        )
        for entry in json.loads(FILE.read_text("ascii"))
    ]


def has_stray(golden: Golden) -> bool:
    return (golden.api.name, golden.side, golden.client) in STRAYS


RAW = load()
FRAMES = [
    golden._replace(frame=golden.frame.removesuffix(STRAY)) if has_stray(golden) else golden
    for golden in RAW
]
CASES = [
    pytest.param(golden, id=f"{golden.api.name}-{golden.version}-{golden.side}-{number}")
    for number, golden in enumerate(FRAMES)
]

# What must be in the file, and who must have spoken it.
CLIENTS = {"Apache", "librdkafka", "kafka-python", "aiokafka"}
# fmt: off
BY_ALL_CLIENTS = {
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch",
    "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups",
    "ListGroups", "SaslHandshake", "ApiVersions", "CreateTopics", "DeleteTopics", "DeleteRecords",
    "InitProducerId", "AddPartitionsToTxn", "EndTxn", "TxnOffsetCommit", "DescribeConfigs",
    "SaslAuthenticate", "CreatePartitions",
}
BY_SOME_CLIENT = {
    "OffsetForLeaderEpoch", "AddOffsetsToTxn", "WriteTxnMarkers", "DescribeAcls", "CreateAcls",
    "DeleteAcls", "AlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken",
    "DescribeDelegationToken", "DeleteGroups", "ElectLeaders", "IncrementalAlterConfigs",
    "AlterPartitionReassignments", "ListPartitionReassignments", "OffsetDelete",
    "DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials",
    "AlterUserScramCredentials", "DescribeQuorum", "UpdateFeatures", "DescribeCluster",
    "DescribeProducers", "UnregisterBroker", "DescribeTransactions", "ListTransactions",
    "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ListConfigResources",
    "DescribeTopicPartitions", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch",
    "ShareAcknowledge", "StreamsGroupDescribe", "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
}
# fmt: on

# What Kafka 4.3.1 says that it speaks: keys, first and last version.
# fmt: off
ADVERTISED = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
    11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5),
    25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3),
    39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1),
    46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2),
    57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1),
    69: (0, 1), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2),
    80: (0, 1), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1),
    88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0),
}
# fmt: on


def named(api: str, side: str) -> list[Golden]:
    matches = [golden for golden in FRAMES if golden.api.name == api and golden.side == side]
    assert matches, f"no {side} of {api} in {FILE}"
    return matches


def bodies(api: str, side: str) -> list[Any]:
    return [golden.read() for golden in named(api, side)]


@pytest.mark.parametrize("golden", CASES)
def test_frame_is_read_completely_and_written_back(golden: Golden) -> None:
    body = golden.read()
    length, frame = split(b"".join(golden.write(body)))
    assert length == len(golden.frame)
    assert frame == golden.frame


@pytest.mark.parametrize("golden", CASES)
def test_python_twin_reads_and_writes_the_same(golden: Golden) -> None:
    table, start = table_of(golden.message, golden.version), golden.start
    body, end = _twin.read(table, golden.frame, start)
    assert end == len(golden.frame)
    assert body == golden.read()
    assert b"".join(_twin.write(table, body)) == golden.frame[start:]


@pytest.mark.parametrize("golden", CASES)
def test_truncated_frame_is_refused(golden: Golden) -> None:
    short = golden._replace(frame=golden.frame[:-1])
    with pytest.raises(ProtocolError):
        short.read()


def test_stray_byte_after_a_request_is_ignored() -> None:
    strays = [golden for golden in RAW if has_stray(golden)]
    assert strays
    for golden in strays:
        assert golden.read() == golden._replace(frame=golden.frame.removesuffix(STRAY)).read()


def test_kafka_accepts_a_request_with_a_stray_byte() -> None:
    results = [
        result
        for golden in named("AlterUserScramCredentials", "response")
        if golden.client.startswith("librdkafka")
        for result in golden.read().results
    ]
    assert [(result.user, result.error_code) for result in results] == [("rd", ErrorCode.NONE)]


def split(data: bytes) -> tuple[int, bytes]:
    return int.from_bytes(data[:4], "big"), data[4:]


def test_frames_contain_their_api_and_version() -> None:
    for golden in FRAMES:
        if golden.side == "request":
            header, _ = read_header(golden.api, golden.frame)
            assert (header.api_key, header.api_version) == (golden.api.key, golden.version)


@pytest.mark.parametrize("name", sorted(BY_ALL_CLIENTS))
def test_every_client_used_the_common_apis(name: str) -> None:
    assert {golden.client.split()[0] for golden in named(name, "request")} == CLIENTS
    assert named(name, "response")


@pytest.mark.parametrize("name", sorted(BY_SOME_CLIENT))
def test_some_client_used_every_other_api(name: str) -> None:
    assert named(name, "request")
    assert named(name, "response")


def test_newest_version_of_every_client_api_was_recorded() -> None:
    there = {(golden.api.key, golden.version) for golden in FRAMES}
    # Since KIP-890 a client that speaks version 4 of AddOffsetsToTxn has no need of it.
    asked = (BY_ALL_CLIENTS | BY_SOME_CLIENT) - {"AddOffsetsToTxn"}
    keys = {api.key for api in apis().values() if api.name in asked}
    assert {(key, ADVERTISED[key][1]) for key in keys} <= there


def test_api_versions_lists_the_versions_of_kafka_4_3_1() -> None:
    for response in bodies("ApiVersions", "response"):
        assert response.error_code is ErrorCode.NONE
        told = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        assert told == ADVERTISED


def test_every_version_advertised_by_kafka_is_defined() -> None:
    for key, (first, last) in ADVERTISED.items():
        assert {first, last} <= set(apis()[key].versions), apis()[key]


def test_api_versions_lists_the_features_used_by_clients() -> None:
    newest = [golden.read() for golden in named("ApiVersions", "response") if golden.version >= 3]
    assert newest
    for response in newest:
        levels = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }
        assert (levels["transaction.version"], levels["group.version"]) == (2, 1)


def test_clients_send_their_software_name() -> None:
    newest = [golden.read() for golden in named("ApiVersions", "request") if golden.version >= 3]
    names = {request.client_software_name for request in newest}
    assert {"apache-kafka-java", "confluent-kafka-python"} <= names


def test_metadata_names_the_topic_and_its_partitions() -> None:
    seen = set()
    for golden in named("Metadata", "response"):
        for topic in golden.read().topics:
            if topic.name == TOPIC and topic.error_code is ErrorCode.NONE:
                seen.add(golden.version)
                assert sorted(part.partition_index for part in topic.partitions) == [0, 1]
                assert {part.leader_id for part in topic.partitions} == {1}
                assert (topic.topic_id == ZERO_UUID) == (golden.version < 10)
    assert len(seen) >= 5
    assert max(seen) == ADVERTISED[3][1]


def test_metadata_names_the_one_broker() -> None:
    for response in bodies("Metadata", "response"):
        assert [(broker.node_id, broker.host) for broker in response.brokers] == [(1, "127.0.0.1")]


def produced() -> Iterator[tuple[Buffer, BatchHeader]]:
    for request in bodies("Produce", "request"):
        for topic in request.topic_data:
            for part in topic.partition_data:
                (header,) = batches.validate(part.records)
                yield part.records, header


def fetched(golden: Golden) -> Iterator[tuple[Buffer, BatchHeader]]:
    for topic in golden.read().responses:
        for part in topic.partitions:
            for header in batches.check_fetched(part.records or b""):
                yield part.records, header


def test_clients_produce_valid_batches() -> None:
    pairs = list(produced())
    assert {header.codec.name for _, header in pairs} >= {"none", "gzip", "lz4", "zstd"}
    assert {header.is_transactional for _, header in pairs} == {True, False}
    for records, header in pairs:
        assert len(list(read(records, header))) == header.record_count


def test_kafka_returns_valid_batches_in_every_version() -> None:
    for version in {golden.version for golden in named("Fetch", "response")}:
        frames = [golden for golden in named("Fetch", "response") if golden.version == version]
        pairs = [pair for golden in frames for pair in fetched(golden)]
        assert pairs, f"no records in Fetch {version}"
        for records, header in pairs:
            assert len(list(read(records, header))) == header.record_count


def test_fetched_records_equal_the_produced_ones() -> None:
    values = {
        record.value
        for golden in named("Fetch", "response")
        for records, header in fetched(golden)
        for record in read(records, header)
    }
    assert b"line 0" in values


def test_classic_consumers_subscribe_to_the_topic_and_get_its_partitions() -> None:
    for request in bodies("JoinGroup", "request"):
        assert request.protocol_type == "consumer"
        for protocol in request.protocols:
            assert read_subscription(protocol.metadata).topics == [TOPIC]
    assigned = [
        [
            (part.topic, sorted(part.partitions))
            for part in read_assignment(data).assigned_partitions
        ]
        for response in bodies("SyncGroup", "response")
        if (data := response.assignment)
    ]
    assert [(TOPIC, [0, 1])] in assigned
    assert all(parts in ([], [(TOPIC, [0, 1])]) for parts in assigned)


def test_new_consumers_subscribe_to_the_topic_and_leave() -> None:
    requests = bodies("ConsumerGroupHeartbeat", "request")
    assert [TOPIC] in [request.subscribed_topic_names for request in requests]
    assert {0, -1} <= {request.member_epoch for request in requests}


def test_transactions_are_committed_and_aborted() -> None:
    assert {request.committed for request in bodies("EndTxn", "request")} == {True, False}
    markers = [
        marker for request in bodies("WriteTxnMarkers", "request") for marker in request.markers
    ]
    assert {marker.transaction_result for marker in markers} == {True, False}
    assert all(marker.producer_id >= 0 for marker in markers)


def test_offsets_are_committed_for_the_topic() -> None:
    for api in ("OffsetCommit", "TxnOffsetCommit"):
        for golden in named(api, "request"):
            request = golden.read()
            for topic in request.topics:
                known_by_id = golden.api.name == "OffsetCommit" and golden.version >= 10
                assert (
                    (topic.topic_id != ZERO_UUID)
                    if known_by_id
                    else (topic.name in {TOPIC, SOURCE})
                )
                assert all(part.committed_offset >= 0 for part in topic.partitions)
