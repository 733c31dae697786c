"""Classic members of consumer groups: their answers and their timeouts."""

from __future__ import annotations

import pytest

from rookery.errors import ErrorCode
from rookery.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from rookery.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from rookery.wire.messages.sync_group import SyncGroupRequest
from tests.broker.groups.migrating import (
    METADATA,
    NONE,
    NOT_FOUND,
    REBALANCE_IN_PROGRESS,
    consumer,
    settle,
    shares,
    six,
)
from tests.broker.groups.mixing import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ClassicReader,
)

# -- what classic members are answered -------------------------------------------------------------


def test_codes_of_sync_heartbeat_and_leave() -> None:
    group = six()
    new, old = consumer(group, "new"), ClassicReader(group, "t", instance_id="i")
    settle(new, old)
    generation = old.generation

    def sync(
        member_id: str, at: int, name: str | None, instance_id: str | None = None
    ) -> ErrorCode:
        message = SyncGroupRequest(
            group_id=GROUP,
            generation_id=at,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name=name,
            assignments=[],
        )
        code: ErrorCode = group.ask(message, 5).error_code
        return code

    assert sync(old.member_id, generation, "range", "i") is NONE
    assert sync(old.member_id, generation, None) is NONE
    assert sync(old.member_id, generation, "sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(old.member_id, generation - 1, "range") is ErrorCode.ILLEGAL_GENERATION
    assert sync("other", generation, "range", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert sync(old.member_id, generation, "range", "j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync("new", new.epoch, "range") is ErrorCode.UNKNOWN_MEMBER_ID
    third = consumer(group, "third")
    third.beat()
    assert sync(old.member_id, generation, "range", "i") is REBALANCE_IN_PROGRESS

    leaving = [("", "j"), ("other", "i"), ("third", None), ("", "i")]
    answer = group.ask(
        LeaveGroupRequest(
            group_id=GROUP,
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in leaving
            ],
        ),
        5,
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    codes = [member.error_code for member in answer.members]
    assert codes == [unknown, ErrorCode.FENCED_INSTANCE_ID, NONE, NONE]
    assert answer.members[3].member_id == old.member_id
    assert list(group.consumer.group.members) == ["new"]
    assert group.ask(LeaveGroupRequest(group_id=GROUP, member_id="third"), 2).error_code is unknown


@pytest.mark.parametrize("version", range(4))
def test_old_versions_join_without_a_member_id(version: int) -> None:
    group = six()
    settle(consumer(group, "new"))
    message = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=METADATA)],
    )

    answer = group.ask(message, version)

    assert answer.error_code is NONE
    member = group.consumer.group.members[answer.member_id]
    assert member.rebalance_timeout_ms == (
        SESSION_MS if version == 0 else member.rebalance_timeout_ms
    )


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_has_the_version_of_the_subscription(version: int) -> None:
    group = six()
    settle(consumer(group, "new"))
    old = ClassicReader(group, "t", version=version)
    for _ in range(4):
        old.step()
    answer = group.answers[max(group.answers)]
    assert answer.assignment[:2] == version.to_bytes(2, "big")


def test_commits_and_offset_fetches_of_both_kinds_of_members_are_checked() -> None:
    group = six()
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new, old)
    machine, at = group.consumer, old.generation

    def commit(member_id: str, epoch: int, version: int) -> ErrorCode:
        return machine.check_commit(member_id, epoch, None, version=version)

    assert commit("new", at, 9) is NONE
    assert commit("new", at, 8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit("new", at - 1, 9) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(old.member_id, at, 2) is NONE
    assert commit(old.member_id, at, 9) is NONE
    assert commit(old.member_id, at - 1, 8) is ErrorCode.ILLEGAL_GENERATION
    assert commit(old.member_id, at - 1, 9) is ErrorCode.ILLEGAL_GENERATION
    assert commit("nobody", at, 8) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1, 8) is ErrorCode.UNKNOWN_MEMBER_ID
    for member_id, epoch, code in (
        (None, -1, NONE),
        ("new", at, NONE),
        ("new", at - 1, ErrorCode.STALE_MEMBER_EPOCH),
        (old.member_id, at, NONE),
        (old.member_id, at + 1, ErrorCode.ILLEGAL_GENERATION),
        ("nobody", at, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, at, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert machine.check_fetch(member_id, epoch) is code


# -- time ------------------------------------------------------------------------------------------


def test_silent_classic_member_is_removed_after_its_own_session() -> None:
    group = six(session_timeout_ms=60_000)
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new, old)

    group.pass_time(SESSION_MS - 1)
    assert len(group.consumer.group.members) == 2
    group.pass_time(1)

    assert list(group.consumer.group.members) == ["new"]
    settle(new)
    assert shares(group, new) == [6]


def test_member_that_is_silent_from_the_start_is_removed() -> None:
    group = six(session_timeout_ms=60_000)
    old = ClassicReader(group, "t")
    settle(old)
    new, other = consumer(group, "new"), ClassicReader(group, "t")
    new.beat()  # the classic one says nothing from now on
    for _ in range(3):
        other.step()  # it has joined, and says nothing more
    assert len(group.consumer.group.members) == 3

    group.pass_time(SESSION_MS)

    assert list(group.consumer.group.members) == ["new"]


@pytest.mark.parametrize("is_told", [True, False])
def test_member_that_does_not_join_or_sync_in_time_is_removed(is_told: bool) -> None:
    group = six(session_timeout_ms=60_000)
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    if is_told:
        settle(new, old)
        consumer(group, "third").beat()
    else:
        settle(new)
        for _ in range(3):
            old.step()  # it has joined, and does not sync
    member_id = old.member_id
    assert member_id in group.consumer.group.members
    for _ in range(4):
        old.heartbeat()
        group.pass_time(REBALANCE_MS // 4 - 1)
    assert member_id in group.consumer.group.members
    old.heartbeat()
    group.pass_time(4)
    assert member_id not in group.consumer.group.members


def test_a_member_that_joins_and_syncs_in_time_stays() -> None:
    group = six(session_timeout_ms=600_000)
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new, old)
    for _ in range(20):
        old.step()
        group.pass_time(SESSION_MS - 1)

    assert old.member_id in group.consumer.group.members


def test_classic_members_are_notified_of_new_partitions() -> None:
    group = six(migration_policy="upgrade")
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new, old)
    new.leave()
    settle(old)
    assert shares(group, old) == [6]

    group.cluster.grow("t", 8)

    settle(old)
    assert shares(group, old) == [8]


# -- static members --------------------------------------------------------------------------------


def test_static_member_migrates_up_and_down_with_its_instance_id() -> None:
    group = six()
    other = ClassicReader(group, "t", instance_id="other")
    old = ClassicReader(group, "t", instance_id="one")
    settle(other, old)

    new = consumer(group, "new", instance_id="one")
    assert new.beat() is NONE
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    settle(other, new)
    assert shares(group, other, new) == [3, 3]
    assert group.consumer.group.static == {"other": other.member_id, "one": "new"}
    epoch = new.epoch

    again = ClassicReader(group, "t", instance_id="one")
    again.step()
    assert group.kind == "classic"
    assert group.machine.state_name == "Stable", "every member has its target"
    assert new.beat() is NOT_FOUND
    again.step()
    again.step()
    again.step()
    assert again.generation == epoch
    assert other.heartbeat() is NONE
    new.forget()
    assert shares(group, other, again) == [3, 3]


def test_members_with_another_protocol_than_the_downgraded_group_rebalance() -> None:
    group = six()
    new = consumer(group, "new", instance_id="one")
    old = [
        ClassicReader(group, "t", assignor="range", others=("roundrobin",)),
        ClassicReader(group, "t", assignor="roundrobin", others=("range",)),
    ]
    settle(new, *old)
    again = ClassicReader(group, "t", assignor="range", instance_id="one")

    again.step()

    assert group.kind == "classic"
    assert group.machine.state_name == "PreparingRebalance"
    settle(again, *old)
    assert shares(group, again, *old) == [2, 2, 2]
    assert [member.protocol[1] for member in (again, *old)] == ["range"] * 3


def test_classic_static_member_is_replaced_by_a_new_instance() -> None:
    group = six()
    new, old = consumer(group, "new"), ClassicReader(group, "t", instance_id="one")
    settle(new, old)
    epoch = group.consumer.epoch

    again = ClassicReader(group, "t", instance_id="one")
    for _ in range(4):
        again.step()

    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert again.owned == old.owned
    assert group.consumer.epoch == epoch, "no other member is affected"
    old.member_id = "gone"
    old.join()
    old.step()
    assert old.last is ErrorCode.FENCED_INSTANCE_ID


def test_static_consumer_member_is_not_replaced_by_another() -> None:
    group = six()
    settle(consumer(group, "new", instance_id="one"), ClassicReader(group, "t"))

    other = consumer(group, "other", instance_id="one")
    assert other.beat() is ErrorCode.UNRELEASED_INSTANCE_ID
