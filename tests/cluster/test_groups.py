"""Groups in the state: only the holder of the claim can change them, based on what it has seen."""

from __future__ import annotations

from typing import Any

from rookery.cluster.entry import EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import BrokerLeft, BrokerRegistered, ClusterCreated
from rookery.cluster.events.groupevents import (
    ExpiredPlace,
    GroupClaimed,
    GroupDeleted,
    GroupExpired,
    GroupPersisted,
    OffsetCommitted,
    OffsetPlace,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsExpired,
)
from rookery.cluster.events.topicevents import TopicCreated, TopicDeleted
from rookery.cluster.state.groups import Group, coordinator_of
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.state import State
from rookery.errors import ErrorCode
from rookery.wire.message import Message
from tests.cluster.histories import Historian

TOPIC = bytes(range(16))
GROUP = "readers"


class Cluster:
    """Two brokers and a topic; each entry has the right sequence."""

    def __init__(self) -> None:
        self.state = State()
        self.incarnations: dict[int, int] = {}
        self._say(0, 0, ClusterCreated(cluster_id="c", feature_level=1))
        for node in (1, 2):
            self.register(node)
        self.leader = coordinator_of(GROUP, [1, 2])
        self.other = 3 - self.leader
        self.say(1, topic())

    def register(self, node: int) -> None:
        event = BrokerRegistered(process_id=bytes(16), node_id=node, host="h", port=node)
        self._say(0, 0, event)
        self.incarnations[node] = self.state.applied

    def say(self, node: int, event: Message, stamp: int = 1000) -> Outcome:
        incarnation = self.incarnations[node]
        sequence = self.state.brokers.sequences[incarnation] + 1
        return self._say(incarnation, sequence, event, stamp)

    def _say(self, incarnation: int, sequence: int, event: Message, stamp: int = 1000) -> Outcome:
        data = write_entry(EntryAuthor(incarnation, sequence, stamp, 0, 0), [event])
        number = self.state.applied + 1
        entry = read_entry(number, data)
        return self.state.apply(number, entry, read_events(number, entry)).outcomes[0]

    def claim(self, node: int | None = None) -> int:
        outcome = self.say(node or self.leader, GroupClaimed(group_id=GROUP))
        assert outcome.error is ErrorCode.NONE
        return int(outcome.value)

    @property
    def group(self) -> Group:
        return self.state.groups.by_id[GROUP]


def topic(topic_id: bytes = TOPIC) -> TopicCreated:
    return TopicCreated(topic_id=topic_id, name="t", partitions=2, replication_factor=1, configs=[])


def persist(
    epoch: int, version: int, body: bytes = b"body", *, last: bool = True
) -> GroupPersisted:
    return GroupPersisted(
        group_id=GROUP, epoch=epoch, version=version, kind="classic", body=body, is_last=last
    )


def commit(epoch: int, offset: int, partition: int = 0, **changes: object) -> OffsetsCommitted:
    values: dict[str, Any] = {"topic_id": TOPIC, "leader_epoch": 5, "metadata": "nöte", **changes}
    committed = OffsetCommitted(partition=partition, offset=offset, **values)
    return OffsetsCommitted(group_id=GROUP, epoch=epoch, offsets=[committed])


def test_only_the_broker_chosen_by_the_hash_can_claim() -> None:
    cluster = Cluster()

    refused = cluster.say(cluster.other, GroupClaimed(group_id=GROUP))

    assert refused.error is ErrorCode.NOT_COORDINATOR
    assert GROUP not in cluster.state.groups.by_id
    assert cluster.claim() == 1
    assert cluster.claim() == 2


def test_stale_version_of_a_group_is_not_persisted() -> None:
    cluster = Cluster()
    epoch = cluster.claim()

    first = cluster.say(cluster.leader, persist(epoch, 0, b"one"))
    again = cluster.say(cluster.leader, persist(epoch, 0, b"two"))

    assert (first.error, first.value) == (ErrorCode.NONE, 1)
    assert again.error is ErrorCode.NOT_COORDINATOR
    assert (cluster.group.body, cluster.group.version) == (b"one", 1)


def test_fenced_coordinator_can_change_nothing() -> None:
    cluster = Cluster()
    old_epoch = cluster.claim()
    cluster.say(cluster.leader, persist(old_epoch, 0))
    cluster.say(cluster.leader, commit(old_epoch, 7))
    # Its successor is the other broker, while it lives on without knowing.
    before = cluster.incarnations[cluster.leader]
    cluster.group.coordinator, cluster.group.epoch = cluster.incarnations[cluster.other], 2
    place = OffsetPlace(topic_id=TOPIC, partition=0)
    expired = ExpiredPlace(topic_id=TOPIC, partition=0, commit_ms=1000)

    attempts: list[Message] = [
        persist(old_epoch, 1, b"zombie"),
        persist(2, 1, b"zombie"),
        commit(old_epoch, 3),
        commit(2, 3),
        OffsetsDeleted(group_id=GROUP, epoch=old_epoch, places=[place]),
        OffsetsExpired(group_id=GROUP, epoch=old_epoch, places=[expired]),
        GroupDeleted(group_id=GROUP, epoch=old_epoch, version=1),
        GroupExpired(group_id=GROUP, epoch=old_epoch, version=1),
    ]
    for event in attempts:
        assert cluster.say(cluster.leader, event).error is ErrorCode.NOT_COORDINATOR

    assert cluster.group.coordinator != before
    assert cluster.group.body == b"body"
    offset = cluster.group.offset(TOPIC, 0)
    assert offset is not None
    assert offset.offset == 7


def test_successor_claims_with_the_next_epoch() -> None:
    cluster = Cluster()
    epoch = cluster.claim()
    cluster.say(cluster.leader, persist(epoch, 0))
    cluster.say(cluster.leader, BrokerLeft())

    assert cluster.claim(cluster.other) == epoch + 1
    assert cluster.group.body == b"body"
    assert cluster.say(cluster.other, persist(epoch + 1, 1, b"new")).error is ErrorCode.NONE


def test_large_body_is_persisted_in_parts() -> None:
    cluster = Cluster()
    epoch = cluster.claim()
    cluster.say(cluster.leader, persist(epoch, 0, b"old"))

    cluster.say(cluster.leader, persist(epoch, 1, b"first ", last=False))
    assert cluster.group.body == b"old"
    cluster.say(cluster.leader, persist(epoch, 1, b"second"))

    assert (cluster.group.body, cluster.group.version) == (b"first second", 2)


def test_parts_of_a_body_are_dropped_with_the_claim() -> None:
    cluster = Cluster()
    epoch = cluster.claim()
    cluster.say(cluster.leader, persist(epoch, 0, b"half", last=False))

    epoch = cluster.claim()
    cluster.say(cluster.leader, persist(epoch, 0, b"whole"))

    assert cluster.group.body == b"whole"


def test_committed_offset_keeps_all_its_fields() -> None:
    cluster = Cluster()
    epoch = cluster.claim()

    outcome = cluster.say(cluster.leader, commit(epoch, 42, retention_ms=9), stamp=1234)

    assert outcome.value == [ErrorCode.NONE]
    state = read_image(write_image(cluster.state))
    offset = state.groups.by_id[GROUP].offset(TOPIC, 0)
    assert offset == (42, 5, 1234, 9, "nöte")
    assert cluster.group.offset(TOPIC, 1) is None


def test_commit_for_an_unknown_partition_is_refused_separately() -> None:
    cluster = Cluster()
    epoch = cluster.claim()
    event = commit(epoch, 1)
    event.offsets.append(commit(epoch, 2, partition=2).offsets[0])
    event.offsets.append(commit(epoch, 3, topic_id=bytes(16)).offsets[0])

    outcome = cluster.say(cluster.leader, event)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome.value == [ErrorCode.NONE, unknown, unknown]
    assert len(list(cluster.group.each_offset())) == 1


def test_recreated_topic_has_no_committed_offsets() -> None:
    cluster = Cluster()
    epoch = cluster.claim()
    cluster.say(cluster.leader, commit(epoch, 42))

    cluster.say(1, TopicDeleted(topic_id=TOPIC))
    cluster.say(1, topic(bytes(16)))

    assert cluster.group.offsets == {}


def test_renewed_offset_does_not_expire() -> None:
    cluster = Cluster()
    epoch = cluster.claim()
    cluster.say(cluster.leader, commit(epoch, 1), stamp=1000)
    cluster.say(cluster.leader, commit(epoch, 1, partition=1), stamp=1000)
    cluster.say(cluster.leader, commit(epoch, 2), stamp=2000)
    seen = [ExpiredPlace(topic_id=TOPIC, partition=index, commit_ms=1000) for index in (0, 1)]

    event = OffsetsExpired(group_id=GROUP, epoch=epoch, places=seen)

    assert cluster.say(cluster.leader, event).value == 1
    assert [partition for _, partition, _ in cluster.group.each_offset()] == [0]


def test_group_changed_since_its_expiry_was_proposed_does_not_expire() -> None:
    cluster = Cluster()
    epoch = cluster.claim()
    end = GroupExpired(group_id=GROUP, epoch=epoch, version=0)
    cluster.say(cluster.leader, commit(epoch, 1))
    assert cluster.say(cluster.leader, end).error is ErrorCode.REBALANCE_IN_PROGRESS
    place = OffsetPlace(topic_id=TOPIC, partition=0)
    cluster.say(cluster.leader, OffsetsDeleted(group_id=GROUP, epoch=epoch, places=[place]))
    cluster.say(cluster.leader, persist(epoch, 0))
    assert cluster.say(cluster.leader, end).error is ErrorCode.REBALANCE_IN_PROGRESS

    end.version = 1

    assert cluster.say(cluster.leader, end).error is ErrorCode.NONE
    assert GROUP not in cluster.state.groups.by_id


def test_deleting_a_group_deletes_its_offsets() -> None:
    cluster = Cluster()
    epoch = cluster.claim()
    cluster.say(cluster.leader, commit(epoch, 1))

    cluster.say(cluster.leader, GroupDeleted(group_id=GROUP, epoch=epoch, version=0))

    cluster.claim()
    assert cluster.group.offsets == {}


def test_random_histories_contain_groups_of_every_form() -> None:
    """What the property tests go through is worth it: groups get bodies and offsets, and end."""
    seen: set[str] = set()
    for seed in range(20):
        state, historian = State(), Historian(seed)
        for _ in range(150):
            before = set(state.groups.by_id)
            number, data = state.applied + 1, historian.entry(state)
            entry = read_entry(number, data)
            state.apply(number, entry, read_events(number, entry))
            seen |= {"gone"} if before - set(state.groups.by_id) else set()
            for group in state.groups:
                seen |= {name for name in ("body", "staged", "offsets") if getattr(group, name)}

    assert seen == {"gone", "body", "staged", "offsets"}
