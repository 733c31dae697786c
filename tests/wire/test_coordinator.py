"""The state topics' keys and values, against bytes that Kafka 4.3 wrote."""

from __future__ import annotations

import pytest

from rookery.errors import ApiError, Corrupt
from rookery.testing.messages import random_message
from rookery.wire.coordinator.catalog import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from rookery.wire.coordinator.classic import GroupMetadataKey
from rookery.wire.coordinator.consumer import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    OwnedPartitions,
)
from rookery.wire.coordinator.frames import StateTopic
from rookery.wire.coordinator.offsets import OffsetCommitKey, OffsetCommitValue
from rookery.wire.coordinator.transactions import TransactionLogKey
from rookery.wire.message import Message
from tests.wire.golden_records import Golden, golden

TOPICS = [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE]
TOPIC_OF: dict[type[Message], StateTopic] = {
    message: topic for topic in TOPICS for pair in topic.values.items() for message in pair
}
KEYS = [key for topic in TOPICS for key in topic.values]
VALUES = [value for topic in TOPICS for value in topic.values.values()]
KEY = OffsetCommitKey(group="billing", topic="orders", partition=3)
VALUE = OffsetCommitValue(offset=42, metadata="", commit_timestamp=1_700_000_000_000)


def key_for(value: type[Message], seed: int = 1) -> Message:
    """Return some key that has such a value."""
    key = next(key for key, kin in TOPIC_OF[value].values.items() if kin is value)
    return random_message(key, 0, seed)


@pytest.mark.parametrize("case", golden(KEYS))
def test_keys_equal_those_of_kafka(case: Golden) -> None:
    topic, key = TOPIC_OF[case.message], case.build()

    assert topic.write_key(key) == case.framed
    assert topic.read_key(case.framed) == key


@pytest.mark.parametrize("case", golden(VALUES))
def test_values_equal_those_of_kafka(case: Golden) -> None:
    topic, value = TOPIC_OF[case.message], case.build()

    assert topic.write_value(value, case.version) == case.framed
    assert topic.read_value(key_for(case.message), case.framed) == (value, case.version)


@pytest.mark.parametrize(
    ("value", "version"),
    [(value, version) for value in VALUES for version in value.VERSIONS or ()],
)
def test_random_records_survive_a_round_trip(value: type[Message], version: int) -> None:
    topic = TOPIC_OF[value]
    for seed in range(20):
        key, body = key_for(value, seed), random_message(value, version, seed)

        assert topic.read_key(topic.write_key(key)) == key
        assert topic.read_value(key, topic.write_value(body, version)) == (body, version)


def test_catalog_has_every_type_of_kafka_4_3() -> None:
    assert sorted(CONSUMER_OFFSETS.keys) == [*range(9), *range(10, 18), *range(19, 24)]
    assert sorted(TRANSACTION_STATE.keys) == [0]
    assert sorted(SHARE_GROUP_STATE.keys) == [0, 1]


def test_a_tombstone_has_no_value() -> None:
    assert CONSUMER_OFFSETS.read_value(KEY, None) is None


@pytest.mark.parametrize("number", [9, 18, 24, 32767, -1])
def test_key_of_an_unknown_type_can_be_skipped(number: int) -> None:
    assert CONSUMER_OFFSETS.read_key(number.to_bytes(2, "big", signed=True) + b"whatever") is None


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"", "__consumer_offsets"),
        (b"\0", "2 bytes wanted"),
        (b"\0\1", "OffsetCommitKey.group"),
        (CONSUMER_OFFSETS.write_key(KEY)[:-1], "OffsetCommitKey.partition"),
        (CONSUMER_OFFSETS.write_key(KEY) + b"\0", "left over"),
        (bytes.fromhex("00017fff61"), "OffsetCommitKey.group"),
    ],
)
def test_damaged_keys_are_corrupt(key: bytes, text: str) -> None:
    with pytest.raises(Corrupt, match=text):
        CONSUMER_OFFSETS.read_key(key)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "__consumer_offsets"),
        (b"\0\5" + bytes(40), "newer"),
        (b"\xff\xff" + bytes(40), "version -1"),
        (CONSUMER_OFFSETS.write_value(VALUE, 3)[:-1], "OffsetCommitValue.commit_timestamp"),
        (CONSUMER_OFFSETS.write_value(VALUE, 3) + b"\0", "left over"),
    ],
)
def test_damaged_values_are_corrupt(value: bytes, text: str) -> None:
    with pytest.raises(Corrupt, match=text):
        CONSUMER_OFFSETS.read_value(KEY, value)


def test_record_of_another_topic_is_refused() -> None:
    with pytest.raises(TypeError, match="__consumer_offsets"):
        CONSUMER_OFFSETS.write_key(TransactionLogKey(transactional_id="t"))
    with pytest.raises(TypeError, match="__transaction_state"):
        TRANSACTION_STATE.write_value(VALUE, 3)
    with pytest.raises(TypeError, match="__transaction_state"):
        TRANSACTION_STATE.read_value(GroupMetadataKey(group="g"), None)


def test_value_cannot_be_written_in_an_unknown_version() -> None:
    with pytest.raises(ApiError, match="OffsetCommitValue version 5"):
        CONSUMER_OFFSETS.write_value(VALUE, 5)


def member(classic: ClassicMemberMetadata | None) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=classic,
    )


def test_consumer_protocol_member_is_written_with_a_null_classic_part() -> None:
    # As Kafka 4.3 writes it: a missing tag would mean an empty structure, so the null has one.
    wire = bytes.fromhex("0000" + "0000010101" + "00" + "ffffffff" + "00" + "01" + "000100")
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")

    assert CONSUMER_OFFSETS.write_value(member(None), 0) == wire
    assert CONSUMER_OFFSETS.read_value(key, wire) == (member(None), 0)


def test_assignment_epochs_can_be_null_which_is_not_their_default() -> None:
    # As Kafka 4.3 writes it: the null stands in a tag; an empty list would have none.
    wire = bytes.fromhex("0000" + "00" * 9 + "02" + "00" * 16 + "01" + "01000100" + "0100")
    owned = OwnedPartitions(topic_id=bytes(16), partitions=[], assignment_epochs=None)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=0,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=[owned],
        partitions_pending_revocation=[],
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")

    assert CONSUMER_OFFSETS.write_value(value, 0) == wire
    assert CONSUMER_OFFSETS.read_value(key, wire) == (value, 0)
