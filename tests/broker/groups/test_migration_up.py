"""Classic groups that become consumer groups while they have members, and those that may not."""

from __future__ import annotations

from typing import Literal

import pytest

from rookery.broker.groups.classic.machine import ClassicGroupMachine
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import ErrorCode
from rookery.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from rookery.wire.protocols.consumer import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    write_assignment,
)
from tests.broker.groups.beats import Cluster, Reader
from tests.broker.groups.migrating import (
    METADATA,
    NONE,
    NOT_FOUND,
    REBALANCE_IN_PROGRESS,
    AnyReader,
    both,
    check_apart,
    consumer,
    join_by,
    settle,
    shares,
    six,
    waiting,
)
from tests.broker.groups.mixing import (
    AT_ONCE,
    COOPERATIVE,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ClassicReader,
    Mixed,
)

# -- upwards ---------------------------------------------------------------------------------------


@both
def test_members_upgrade_and_downgrade_one_by_one(assignor: str) -> None:
    group = six()
    old = [ClassicReader(group, "t", assignor=assignor) for _ in range(3)]
    settle(*old)
    assert (group.kind, shares(group, *old)) == ("classic", [2, 2, 2])

    members: list[AnyReader] = [*old]
    for at in range(3):
        assert old[at].leave() is NONE
        members[at] = consumer(group, f"new-{at}")
        settle(*members)
        assert group.kind == "consumer"
        assert sorted(shares(group, *members)) == [2, 2, 2]
    assert group.machine.state_name == "Stable"

    for at in range(3):
        leaving = members[at]
        assert isinstance(leaving, Reader)
        leaving.leave()
        members[at] = ClassicReader(group, "t", assignor=assignor)
        settle(*members)
        assert group.kind == ("classic" if at == 2 else "consumer")
        assert sorted(shares(group, *members)) == [2, 2, 2]
    assert group.machine.state_name == "Stable"


def test_upgraded_group_keeps_the_assignment_of_its_members() -> None:
    group = six()
    old = [ClassicReader(group, "t") for _ in range(2)]
    settle(*old)
    generation = old[0].generation
    before = {reader.member_id: reader.places() for reader in old}
    new = consumer(group, "new")

    assert new.beat() is NONE

    assert new.epoch == generation + 1
    assert new.told == frozenset(), "all is owned by those who have it"
    description = group.consumer.description()
    assert description.state == "Reconciling"
    for member in description.members:
        is_classic = member.member.member_id in before
        assert (member.member.classic is not None) is is_classic
        if is_classic:
            assert member.member.epoch == generation
            assert member.member.holding.assigned == before[member.member.member_id]
            assert member.member.names == {"t"}
    assert [reader.heartbeat() for reader in old] == [REBALANCE_IN_PROGRESS] * 2


def test_classic_member_joins_immediately_and_gets_its_assignment_by_sync() -> None:
    group = six()
    old = ClassicReader(group, "t", assignor=COOPERATIVE)
    settle(old)
    new = consumer(group, "new")
    new.beat()

    old.step()  # a heartbeat, then it joins
    old.step()  # the answer: it is where it was
    assert old.generation == 1
    assert len(old.owned) == 6
    old.step()
    old.step()  # the assignment: it gives up three, and joins again
    assert len(old.owned) == 3
    assert old.generation == 1
    old.step()
    assert old.generation == 2
    new.step()
    assert len(new.told) == 3


def test_classic_member_rebalances_only_when_its_partitions_are_free() -> None:
    group = six()
    new = [consumer(group, f"new-{at}") for at in range(2)]
    settle(*new)
    old = ClassicReader(group, "t", assignor=COOPERATIVE)
    for _ in range(4):
        old.step()
    assert old.owned == frozenset()
    assert old.heartbeat() is NONE, "no member has given anything up"

    new[0].step()
    assert old.heartbeat() is NONE, "only one of two has got its assignment"
    settle(*new)
    assert old.heartbeat() is REBALANCE_IN_PROGRESS
    settle(old, *new)
    assert shares(group, old, *new) == [2, 2, 2]


@pytest.mark.parametrize("steps", range(1, 7))
@both
def test_group_can_be_upgraded_during_a_rebalance(assignor: str, steps: int) -> None:
    group = six()
    old = [ClassicReader(group, "t", assignor=assignor) for _ in range(3)]
    settle(*old[:2])
    for _ in range(steps):
        for reader in old:
            reader.step()
    new = consumer(group, "new")

    assert new.beat() is NONE

    settle(*old, new)
    assert sorted(shares(group, *old, new)) == [1, 1, 2, 2]


def test_members_with_a_pending_join_must_rejoin() -> None:
    group = six()
    old = [ClassicReader(group, "t") for _ in range(2)]
    settle(old[0])
    old[1].step()
    old[1].step()
    assert waiting(*old) == [False, True]

    consumer(group, "new").beat()

    assert waiting(*old) == [False, False]
    member_id = old[1].member_id
    old[1].step()
    old[1].step()
    assert (old[1].last, old[1].member_id) == (NONE, member_id)


def test_partitions_still_read_by_a_cooperative_member_are_not_reassigned() -> None:
    group = six()
    old = [ClassicReader(group, "t", assignor=COOPERATIVE) for _ in range(4)]
    settle(*old[:2])
    old[2].step()
    old[2].step()
    for reader in old[:2]:
        reader.step()
    assert group.machine.state_name == "CompletingRebalance"
    old[3].step()
    old[3].step()  # the rebalance is broken off: nothing is known of what was assigned before
    assert group.machine.state_name == "PreparingRebalance"
    assert [len(reader.owned) for reader in old] == [3, 3, 0, 0]
    new = consumer(group, "new")

    new.step()

    check_apart(*old, new)
    settle(*old, new)
    assert sorted(shares(group, *old, new)) == [1, 1, 1, 1, 2]


def test_partition_owned_by_two_classic_members_gets_one_owner() -> None:
    group = six()
    ids = [group.answers[join_by(group, "consumer", METADATA)].member_id]
    second = join_by(group, "consumer", METADATA)
    join_by(group, "consumer", METADATA, ids[0])
    ids.append(group.answers[second].member_id)
    both_get = write_assignment(
        ConsumerProtocolAssignment(
            assigned_partitions=[AssignedTopic(topic="t", partitions=[0, 1])]
        )
    )
    for member_id in reversed(ids):
        parts = [SyncGroupRequestAssignment(member_id=owner, assignment=both_get) for owner in ids]
        message = SyncGroupRequest(
            group_id=GROUP,
            generation_id=2,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=parts,
        )
        group.send(message, 5)
    assert group.machine.state_name == "Stable"
    new = consumer(group, "new")

    new.step()

    held = [member.holding.assigned for member in group.consumer.group.members.values()]
    assert sorted(map(len, held)) == [0, 2, 2]
    assert len(frozenset().union(*held)) == 4
    for member_id in ids:
        group.consumer.group.remove(group.consumer.group.members[member_id])
    settle(new)
    assert shares(group, new) == [6]


def test_classic_member_that_sends_consumer_heartbeats_is_converted() -> None:
    group = six(session_timeout_ms=600_000)
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new, old)
    old.join()  # a SyncGroup is awaited of it
    member_id, epoch = old.member_id, old.generation

    assert group.beat(member_id=member_id, member_epoch=epoch).error_code is NONE

    assert group.consumer.group.members[old.member_id].classic is None
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    group.pass_time(REBALANCE_MS + SESSION_MS)
    assert group.beat(member_id=member_id, member_epoch=epoch).error_code is NONE
    group.fail_over()
    assert group.consumer.group.members[old.member_id].classic is None


# -- who may not -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "goes_up", "goes_down"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_migration_policy_decides_upgrade_and_downgrade(
    policy: Literal["disabled", "upgrade", "downgrade", "bidirectional"],
    goes_up: bool,
    goes_down: bool,
) -> None:
    group = six(migration_policy=policy)
    old = ClassicReader(group, "t")
    settle(old)
    new = consumer(group, "new")

    assert new.beat() is (NONE if goes_up else NOT_FOUND)
    assert group.kind == ("consumer" if goes_up else "classic")

    other = six(migration_policy=policy)
    new, old = consumer(other, "new"), ClassicReader(other, "t")
    settle(new, old)
    assert other.kind == "consumer"
    if policy == "disabled":
        assert old.last is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert shares(other, new, old) == [6, 0]
        return
    assert shares(other, new, old) == [3, 3]
    new.leave()
    settle(old)
    assert other.kind == ("classic" if goes_down else "consumer")
    assert shares(other, old) == [6]


@pytest.mark.parametrize(
    ("protocol_type", "metadata"),
    [("connect", b"\0\1\0\0\0\0\0\0\0\0"), ("consumer", b""), ("consumer", b"\xff\xff")],
)
def test_classic_group_that_is_not_of_consumers_is_not_upgraded(
    protocol_type: str, metadata: bytes
) -> None:
    group = six()
    joined = group.answers[join_by(group, protocol_type, metadata)]
    kept = group.kept
    new = consumer(group, "new")

    assert new.beat() is NOT_FOUND

    assert (group.kind, group.kept) == ("classic", kept)
    assert group.machine.state_name == "CompletingRebalance"
    assert isinstance(group.machine, ClassicGroupMachine)
    assert group.machine.check_commit(joined.member_id, 1, None) is REBALANCE_IN_PROGRESS


def test_only_a_joining_member_upgrades_a_group() -> None:
    group = six()
    settle(ClassicReader(group, "t"))

    answer = group.beat(member_id="new", member_epoch=3)

    assert answer.error_code is NOT_FOUND
    assert group.kind == "classic"


def test_failed_request_does_not_upgrade_the_group() -> None:
    group = six(max_size=1)
    old = ClassicReader(group, "t")
    settle(old)

    assert consumer(group, "new").beat() is ErrorCode.GROUP_MAX_SIZE_REACHED
    invalid = group.beat(member_id="new", member_epoch=0, subscribed_topic_names=["t"])
    assert invalid.error_code is ErrorCode.INVALID_REQUEST

    assert group.kind == "classic"
    assert old.heartbeat() is NONE


def test_a_group_too_large_for_a_consumer_group_stays_classic() -> None:
    group = six(max_size=1)
    settle(*(ClassicReader(group, "t") for _ in range(2)))

    assert consumer(group, "new").beat() is NOT_FOUND


def test_conditions_for_joining_a_consumer_group_are_checked() -> None:
    group = six(max_size=3)
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new, old)
    for kind, told, code in (
        ("connect", METADATA, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", b"\0", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", b"x" * AT_ONCE.max_bytes, ErrorCode.MESSAGE_TOO_LARGE),
        ("consumer", METADATA, NONE),
        ("consumer", METADATA, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ):
        assert group.answers[join_by(group, kind, told)].error_code is code
    other = ClassicReader(group, "t", assignor=COOPERATIVE)
    other.step()
    other.step()
    assert other.last is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(group.consumer.group.members) == 3


def test_the_metadata_of_all_classic_members_is_bounded() -> None:
    bounds = ClassicSettings(initial_rebalance_delay_ms=0, max_bytes=1_024)
    group = Mixed(Cluster(t=6), ConsumerSettings(), bounds)
    settle(consumer(group, "new"))
    large = METADATA[:-4] + (600).to_bytes(4, "big") + bytes(600)
    first = group.answers[join_by(group, "consumer", large)]
    assert first.error_code is NONE
    assert group.answers[join_by(group, "consumer", large, first.member_id)].error_code is NONE

    second = group.answers[join_by(group, "consumer", large)]

    assert second.error_code is ErrorCode.MESSAGE_TOO_LARGE


def test_classic_members_need_a_protocol_in_common() -> None:
    group = six()
    settle(consumer(group, "new"), ClassicReader(group, "t"))
    other = ClassicReader(group, "t", assignor=COOPERATIVE)
    other.step()
    other.step()

    assert other.last is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_stray_heartbeat_does_not_convert_an_empty_classic_group() -> None:
    group = six()
    reader = ClassicReader(group, "t")
    settle(reader)
    reader.leave()
    kept = group.kept
    assert (group.kind, group.machine.state_name) == ("classic", "Empty")

    assert group.beat(member_id="gone", member_epoch=3).error_code is ErrorCode.UNKNOWN_MEMBER_ID

    assert (group.kind, group.kept) == ("classic", kept)
