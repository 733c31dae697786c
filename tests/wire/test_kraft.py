"""The metadata log's records, against bytes that Kafka 4.3 wrote."""

from __future__ import annotations

import pytest

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.testing.messages import random_message
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.kraft.brokers import Endpoint, RegisterBrokerRecord
from rookery.wire.kraft.catalog import RECORDS, read_record, write_record
from rookery.wire.kraft.cluster import NoOpRecord
from rookery.wire.kraft.topics import PartitionChangeRecord, TopicRecord
from rookery.wire.message import Message
from tests.wire.golden_records import Golden, golden

TOPIC = TopicRecord(name="orders", topic_id=bytes(range(16)))


def versions_of(message: type[Message]) -> range:
    assert message.VERSIONS is not None
    return message.VERSIONS


@pytest.mark.parametrize("case", golden(RECORDS.values()))
def test_written_records_equal_those_of_kafka(case: Golden) -> None:
    record = case.build()

    assert encode_bytes(record, case.version) == case.body
    assert write_record(record, case.version) == case.framed


@pytest.mark.parametrize("case", golden(RECORDS.values()))
def test_records_of_kafka_are_read(case: Golden) -> None:
    assert decode(case.message, case.version, case.body) == case.build()
    assert read_record(case.framed) == (case.build(), case.version)


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key, record in RECORDS.items() for version in versions_of(record)],
)
def test_random_records_survive_a_round_trip(key: int, version: int) -> None:
    for seed in range(20):
        record = random_message(RECORDS[key], version, seed)
        assert read_record(write_record(record, version)) == (record, version)


def test_catalog_has_every_type_of_kafka_4_3_once() -> None:
    # Kafka has given up the numbers 6, 13 and 16.
    assert list(RECORDS) == [*range(6), *range(7, 13), 14, 15, *range(17, 29)]
    assert all(key == record.KEY for key, record in RECORDS.items())


def test_empty_change_is_written_without_tags() -> None:
    change = PartitionChangeRecord(partition_id=7, topic_id=bytes(16))

    assert encode_bytes(change, 2) == bytes.fromhex("00000007") + bytes(16) + b"\0"


def test_no_leader_differs_from_an_unchanged_leader() -> None:
    change = PartitionChangeRecord(partition_id=7, topic_id=bytes(16), leader=-1)

    assert encode_bytes(change, 0).endswith(bytes.fromhex("010104ffffffff"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "cannot be read"),
        (bytes.fromhex("00020000"), "frame version 0"),
        (bytes.fromhex("02020000"), "frame version 2"),
        (bytes.fromhex("010d0000"), "type 13"),
        (bytes.fromhex("01ffffffff0f0000"), "type 4294967295"),
        (bytes.fromhex("ffffffffffff"), "varint"),
        (bytes.fromhex("01140100"), "newer"),
        (bytes.fromhex("01148080808010" + "00"), "varint"),
        (write_record(TOPIC, 0)[:-1], "TopicRecord"),
        (write_record(TOPIC, 0) + b"\0", "left over"),
        (bytes.fromhex("010200ffffffff7f61"), "TopicRecord.name"),
    ],
)
def test_damaged_record_is_corrupt(value: bytes, text: str) -> None:
    with pytest.raises(Corrupt, match=text):
        read_record(value)


def test_truncated_record_is_refused() -> None:
    record = random_message(RegisterBrokerRecord, 4, 5).replace(rack="a", log_dirs=[bytes(16)])
    framed = write_record(record, 4)

    for end in range(len(framed)):
        with pytest.raises(Corrupt):
            read_record(framed[:end])


def test_records_can_be_read_from_views() -> None:
    framed = memoryview(b"xx" + write_record(TOPIC, 0))

    assert read_record(framed[2:]) == (TOPIC, 0)


def test_only_records_can_be_written() -> None:
    endpoint = Endpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)

    with pytest.raises(TypeError, match="Endpoint"):
        write_record(endpoint, 0)


@pytest.mark.parametrize("version", [-1, 1, 1000])
def test_only_known_versions_can_be_written(version: int) -> None:
    with pytest.raises(ApiError) as caught:
        write_record(NoOpRecord(), version)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
