"""Metadata records, snapshots and the image that follows from them."""

from __future__ import annotations

import pytest

from rookery.errors import Corrupt
from rookery.formats.kraft.entries import (
    ControlEntry,
    MetadataEntry,
    pack_batch,
    pack_control,
    read_batch,
    version_for,
)
from rookery.formats.kraft.image import MetadataImage
from rookery.formats.kraft.quorum import QuorumState, format_quorum_state, parse_quorum_state
from rookery.formats.kraft.snapshots import (
    SnapshotName,
    is_whole,
    pack_snapshot,
    parse_snapshot_name,
)
from rookery.model.control import ControlRecordType
from rookery.records.batches import parse, verify
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.wire.control import LeaderChangeMessage, Voter
from rookery.wire.kraft.brokers import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    RegisterBrokerRecord,
)
from rookery.wire.kraft.cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from rookery.wire.kraft.security import UserScramCredentialRecord
from rookery.wire.kraft.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from rookery.wire.message import Message

ID, OTHER = b"\1" * 16, b"\2" * 16
LEVEL = 30


class World:
    """An image, and the log that it follows."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.offset = 0

    def say(self, *messages: Message) -> None:
        rows = [(message, version_for(message, LEVEL)) for message in messages]
        self.feed(pack_batch(rows, self.offset, 3, 1000))

    def feed(self, data: bytes) -> None:
        header = parse(data)
        for entry in read_batch(data, header):
            self.image.apply(entry)
        self.offset = header.last_offset + 1


def topic(name: str = "t", topic_id: bytes = ID) -> list[Message]:
    return [TopicRecord(name=name, topic_id=topic_id), partition(topic_id, 0)]


def partition(topic_id: bytes, number: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], removing_replicas=[],
        adding_replicas=[], leader=1, leader_epoch=4, partition_epoch=7,
        directories=[b"a" * 16, b"b" * 16], eligible_leader_replicas=[2],
    )  # fmt: skip


def config(name: str, value: str | None, resource: str = "t") -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name=resource, name=name, value=value)


def broker(epoch: int = 5) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=1, incarnation_id=ID, broker_epoch=epoch, features=[], rack=None,
        end_points=[Endpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
    )  # fmt: skip


def test_topics_are_created_changed_and_deleted() -> None:
    world = World()
    world.say(*topic(), config("retention.ms", "5"))
    world.say(PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[2], leader=2))
    world.say(PartitionChangeRecord(partition_id=0, topic_id=ID, replicas=[2, 3]))

    replaced = world.image.topics.by_name["t"].partitions[0]
    assert (replaced.leader, replaced.leader_epoch, replaced.partition_epoch) == (2, 5, 9)
    assert (replaced.isr, replaced.replicas) == ((2,), (2, 3))
    assert replaced.directories == (b"b" * 16, bytes(16))
    assert replaced.eligible_leader_replicas == (2,)

    world.say(ClearElrRecord(topic_name="t"))
    assert world.image.topics.by_name["t"].partitions[0].eligible_leader_replicas == ()

    world.say(RemoveTopicRecord(topic_id=ID))
    assert (world.image.topics.by_name, world.image.topics.by_id) == ({}, {})
    assert world.image.configs == {}
    assert (world.image.next_offset, world.image.epoch, world.image.orphans) == (7, 3, 0)


def test_recreated_topic_keeps_its_own_configs() -> None:
    world = World()
    world.say(*topic(), RemoveTopicRecord(topic_id=ID), *topic("t", OTHER), config("a", "1"))

    assert world.image.topics.by_name["t"].topic_id == OTHER
    assert world.image.topic_configs("t") == {"a": "1"}


def test_records_of_unknown_topics_are_counted() -> None:
    world = World()
    world.say(partition(OTHER, 0), RemoveTopicRecord(topic_id=OTHER))

    assert world.image.orphans == 2


def test_configs_features_quotas_and_brokers_are_applied() -> None:
    world = World()
    quota = [EntityData(entity_type="user", entity_name=None)]
    world.say(
        config("a", "1"),
        config("b", "2"),
        config("a", None),
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="x", feature_level=1),
        FeatureLevelRecord(name="x", feature_level=0),
        ClientQuotaRecord(entity=quota, key="rate", value=2.5, remove=False),
        ProducerIdsRecord(broker_id=1, next_producer_id=3000),
        broker(),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1),
        NoOpRecord(),
    )

    image = world.image
    assert image.topic_configs("t") == {"b": "2"}
    assert image.features == {"metadata.version": 25}
    assert image.metadata_version == 25
    assert image.quotas == {(("user", None),): {"rate": 2.5}}
    assert image.next_producer_id == 3000
    assert not image.brokers[1].fenced


def test_metadata_transaction_is_atomic() -> None:
    world = World()
    world.say(BeginTransactionRecord(), *topic())
    assert world.image.is_in_transaction
    assert not world.image.topics.by_name
    world.say(EndTransactionRecord())
    assert list(world.image.topics.by_name) == ["t"]

    world.say(BeginTransactionRecord(), *topic("u", OTHER), AbortTransactionRecord())
    assert list(world.image.topics.by_name) == ["t"]


def test_new_controller_drops_an_unfinished_transaction() -> None:
    world = World()
    world.say(BeginTransactionRecord(), *topic())
    voter = Voter(voter_id=1)
    change = LeaderChangeMessage(version=0, leader_id=1, voters=[voter], granting_voters=[])
    world.feed(pack_control([(ControlRecordType.LEADER_CHANGE, change)], world.offset, 4, 0))

    assert not world.image.is_in_transaction
    assert world.image.epoch == 4


def test_unknown_records_are_skipped_and_counted() -> None:
    world = World()
    rows = [
        Record(None, bytes([1, 0xF4, 0x03, 2]) + b"whatever it is", (), 5),
        Record(None, bytes([1, 2, 9]) + b"a topic of version 9", (), 5),
    ]
    world.feed(build(rows))
    world.say(*topic())

    assert world.image.skipped == {(500, 2): 1, (2, 9): 1}
    assert list(world.image.topics.by_name) == ["t"]


def test_a_broken_record_is_named_with_its_offset() -> None:
    data = build([Record(None, bytes([1, 2, 0, 200]), (), 5)], BatchSettings(base_offset=40))
    with pytest.raises(Corrupt, match=r"^offset 40: "):
        list(read_batch(data, parse(data)))
    frame = build([Record(None, bytes([7, 2, 0]), (), 5)])
    with pytest.raises(Corrupt, match="frame version 7"):
        list(read_batch(frame, parse(frame)))


def test_snapshot_restores_the_whole_image() -> None:
    world = World()
    world.say(
        *topic(), config("a", "1"), broker(), ProducerIdsRecord(broker_id=1, next_producer_id=9)
    )
    world.say(FeatureLevelRecord(name="metadata.version", feature_level=LEVEL))
    user = UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    world.say(user)

    rows = [(record, version_for(record, LEVEL)) for record in world.image.records()]
    data = memoryview(pack_snapshot(rows, epoch=3, timestamp=77))
    entries: list[MetadataEntry | ControlEntry] = []
    for header in verify(data):
        entries += read_batch(data[header.position : header.end], header)
    again = MetadataImage()
    for entry in entries:
        again.apply(entry)

    assert is_whole(entries)
    assert not is_whole(entries[:-1])
    for part in ("topics", "configs", "features", "brokers", "scram", "next_producer_id"):
        assert getattr(again, part) == getattr(world.image, part)


def test_records_are_written_in_the_version_of_their_metadata_level() -> None:
    record = partition(ID, 0)
    assert [version_for(record, level) for level in (1, 16, 17, 22, 23, 30)] == [0, 0, 1, 1, 2, 2]
    assert [version_for(broker(), level) for level in (1, 7, 8, 17, 30)] == [0, 1, 2, 3, 4]
    assert version_for(NoOpRecord(), 30) == 0
    with pytest.raises(TypeError):
        version_for(Voter(voter_id=1), 30)


def test_snapshot_names_are_parsed() -> None:
    name = SnapshotName(101, 7)
    assert name.text == "00000000000000000101-0000000007.checkpoint"
    assert parse_snapshot_name(name.text) == name
    assert parse_snapshot_name(f"{name.text}.part") is None
    assert parse_snapshot_name("bootstrap.checkpoint") is None


def test_quorum_state_is_parsed() -> None:
    text = (
        '{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
        '"data_version":1}'
    )
    assert parse_quorum_state(text) == QuorumState(2, 1)
    assert format_quorum_state(QuorumState(2, 1)) == text
    for wrong in ("", "[]", '{"leaderId":1}'):
        with pytest.raises(Corrupt, match=r"^x: "):
            parse_quorum_state(wrong, "x")
