"""Consumer protocol, principals, control records: against Kafka's bytes, kio and kafka-python."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import pytest
from kafka.protocol.consumer import metadata as kafka_python
from kio.serial import entity_reader, entity_writer

from rookery.errors import ApiError, Corrupt, ErrorCode, ProtocolError
from rookery.model.control import ControlRecordType
from rookery.testing.messages import random_message
from rookery.wire import control
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import Message
from rookery.wire.protocols.consumer import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from rookery.wire.protocols.principal import (
    DefaultPrincipalData,
    read_principal,
    write_principal,
)
from rookery.wire.protocols.versionedbytes import newest
from tests.wire.golden_records import Golden, golden

# Each message with kio's name of it.
MESSAGES: dict[type[Message], str] = {
    ConsumerProtocolSubscription: "consumer_protocol_subscription",
    ConsumerProtocolAssignment: "consumer_protocol_assignment",
    DefaultPrincipalData: "default_principal_data",
    control.ControlRecordTypeSchema: "control_record_type_schema",
    control.EndTxnMarker: "end_txn_marker",
    control.LeaderChangeMessage: "leader_change_message",
    control.SnapshotHeaderRecord: "snapshot_header_record",
    control.SnapshotFooterRecord: "snapshot_footer_record",
    control.KRaftVersionRecord: "k_raft_version_record",
    control.VotersRecord: "voters_record",
}
SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["orders", "größe"],
    user_data=b"sticky",
    owned_partitions=[AssignedTopic(topic="orders", partitions=[0, 7])],
    generation_id=5,
    rack_id="a",
)
ASSIGNMENT = ConsumerProtocolAssignment(
    assigned_partitions=[AssignedTopic(topic="orders", partitions=[1, 2])], user_data=None
)


@pytest.mark.parametrize("case", golden(MESSAGES))
def test_messages_equal_those_of_kafka(case: Golden) -> None:
    message = case.build()

    assert encode_bytes(message, case.version) == case.body
    assert decode(case.message, case.version, case.body) == message


def without_unknown_tags(message: Message) -> Message:
    """Take out what kio does not keep."""
    message.unknown_tags = None
    for name in message.__fields__:
        value = getattr(message, name)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Message):
                without_unknown_tags(item)
    return message


@pytest.mark.parametrize(
    ("message", "version"),
    [(message, version) for message in MESSAGES for version in message.VERSIONS or ()],
)
def test_messages_agree_with_kio(message: type[Message], version: int) -> None:
    theirs = getattr(
        import_module(f"kio.schema.{MESSAGES[message]}.v{version}.data"), message.__name__
    )
    for seed in range(20):
        ours = without_unknown_tags(random_message(message, version, seed))
        wire = encode_bytes(ours, version)

        decoded, size = entity_reader(theirs)(wire, 0)
        rewritten = io.BytesIO()
        entity_writer(theirs)(rewritten, decoded)

        assert size == len(wire)
        assert rewritten.getvalue() == wire
        assert decode(message, version, wire) == ours


@pytest.mark.parametrize("version", range(4))
def test_kafka_python_reads_our_subscription(version: int) -> None:
    theirs = kafka_python.ConsumerProtocolSubscription.decode(
        write_subscription(SUBSCRIPTION, version)
    )

    assert theirs.topics == SUBSCRIPTION.topics
    assert bytes(theirs.user_data) == SUBSCRIPTION.user_data
    if version >= 1:
        assert [(it.topic, it.partitions) for it in theirs.owned_partitions] == [("orders", [0, 7])]


@pytest.mark.parametrize("version", range(2))
def test_subscription_of_kafka_python_is_read(version: int) -> None:
    theirs: Any = kafka_python.ConsumerProtocolSubscription
    owned = [theirs.TopicPartition(topic="orders", partitions=[0, 7])]
    wire = theirs(
        version=version, topics=["orders"], user_data=b"", owned_partitions=owned if version else []
    ).encode()

    assert read_subscription(wire) == ConsumerProtocolSubscription(
        topics=["orders"],
        user_data=b"",
        owned_partitions=SUBSCRIPTION.owned_partitions if version else [],
    )


def test_kafka_python_reads_our_assignment() -> None:
    theirs = kafka_python.ConsumerProtocolAssignment.decode(write_assignment(ASSIGNMENT, 0))

    assert [(it.topic, it.partitions) for it in theirs.assigned_partitions] == [("orders", [1, 2])]


@pytest.mark.parametrize("version", range(4))
def test_subscription_keeps_the_fields_of_its_version(version: int) -> None:
    back = read_subscription(write_subscription(SUBSCRIPTION, version))

    assert back.topics == SUBSCRIPTION.topics
    assert back.user_data == SUBSCRIPTION.user_data
    assert back.owned_partitions == (SUBSCRIPTION.owned_partitions if version >= 1 else [])
    assert back.generation_id == (5 if version >= 2 else -1)
    assert back.rack_id == ("a" if version >= 3 else None)


@pytest.mark.parametrize("version", [4, 9, 32767])
def test_newer_versions_are_read_as_the_newest_known_one(version: int) -> None:
    prefix = version.to_bytes(2, "big")

    subscription = prefix + write_subscription(SUBSCRIPTION)[2:] + b"a field of the future"
    assignment = prefix + write_assignment(ASSIGNMENT)[2:] + b"a field of the future"

    assert read_subscription(subscription) == SUBSCRIPTION
    assert read_assignment(assignment) == ASSIGNMENT


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (b"", "2 bytes wanted"),
        (b"\0", "2 bytes wanted"),
        (b"\xff\xff" + write_subscription(SUBSCRIPTION)[2:], "version -1"),
        (write_subscription(SUBSCRIPTION)[:-1], "rack_id"),
        (bytes.fromhex("00007fffffff"), "topics"),
    ],
)
def test_damaged_subscription_is_refused(wire: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        read_subscription(wire)


def test_damaged_assignment_is_refused() -> None:
    with pytest.raises(ProtocolError, match="assigned_partitions"):
        read_assignment(bytes.fromhex("00007fffffff"))


def test_principal_survives_a_round_trip() -> None:
    principal = DefaultPrincipalData(type_="User", name="alice", token_authenticated=True)

    assert write_principal(principal) == b"\0\0\x05User\x06alice\x01\0"
    assert read_principal(write_principal(principal)) == principal


def test_principal_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        read_principal(b"\0\1\x05User\x06alice\x01\0")
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_only_whole_messages_have_versions() -> None:
    assert newest(ConsumerProtocolSubscription) == 3
    with pytest.raises(TypeError, match="AssignedTopic"):
        newest(AssignedTopic)


@pytest.mark.parametrize("type_", ControlRecordType)
def test_control_record_key_is_a_version_and_a_type(type_: ControlRecordType) -> None:
    assert control.write_key(type_) == bytes((0, 0, 0, type_))
    assert control.read_key(bytes((0, 0, 0, type_))) is type_
    assert control.read_key(bytes((0, 9, 0, type_)) + b"more") is type_


def test_control_record_of_an_unknown_type_can_be_skipped() -> None:
    assert control.read_key(bytes((0, 0, 0, 7))) is None
    assert control.read_key(bytes((0, 0, 0xFF, 0xFF))) is None


@pytest.mark.parametrize("key", [b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_damaged_control_key_is_corrupt(key: bytes) -> None:
    with pytest.raises(Corrupt, match="key"):
        control.read_key(key)


@pytest.mark.parametrize("type_", ControlRecordType)
def test_control_values_survive_a_round_trip(type_: ControlRecordType) -> None:
    message = control.VALUES[type_]
    for seed in range(20):
        value = random_message(message, 0, seed)
        if "version" in message.__fields__:
            value = value.replace(version=0)

        assert control.read_value(type_, control.write_value(value)) == value


def test_transaction_marker_has_six_bytes() -> None:
    wire = control.write_value(control.EndTxnMarker(coordinator_epoch=258))

    assert wire == bytes.fromhex("000000000102")
    assert control.read_value(
        ControlRecordType.COMMIT, bytes.fromhex("000100000102ff")
    ) == control.EndTxnMarker(coordinator_epoch=258)


def test_leader_change_is_encoded_in_the_version_it_names() -> None:
    voter = control.Voter(voter_id=3, voter_directory_id=bytes(range(16)))
    change = control.LeaderChangeMessage(
        version=1, leader_id=3, voters=[voter], granting_voters=[voter]
    )

    wire = control.write_value(change)

    assert wire[:2] == b"\0\1"
    assert control.read_value(ControlRecordType.LEADER_CHANGE, wire) == change


def test_snapshot_header_of_a_newer_version_is_read_as_far_as_known() -> None:
    wire = bytes.fromhex("0005" + "0000000000000102" + "00") + b"a field of the future"

    header = control.read_value(ControlRecordType.SNAPSHOT_HEADER, wire)

    assert header == control.SnapshotHeaderRecord(version=5, last_contained_log_timestamp=258)


@pytest.mark.parametrize("type_", ControlRecordType)
@pytest.mark.parametrize("value", [b"", b"\0", b"\0\0"])
def test_damaged_control_value_is_corrupt(type_: ControlRecordType, value: bytes) -> None:
    with pytest.raises(Corrupt, match=type_.name):
        control.read_value(type_, value)


@pytest.mark.parametrize("type_", ControlRecordType)
def test_control_value_of_a_negative_version_is_corrupt(type_: ControlRecordType) -> None:
    with pytest.raises(Corrupt, match="version -1"):
        control.read_value(type_, b"\xff\xff" + bytes(30))


def test_only_control_records_can_be_written() -> None:
    with pytest.raises(TypeError, match="ConsumerProtocolAssignment"):
        control.write_value(ASSIGNMENT)
