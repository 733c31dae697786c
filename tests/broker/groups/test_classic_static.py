"""Static members of a classic group (KIP-345, KIP-814)."""

from __future__ import annotations

import pytest

from rookery.broker.groups.settings import ClassicSettings
from rookery.errors import ErrorCode
from tests.broker.groups.driving import Driver

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
FENCED = ErrorCode.FENCED_INSTANCE_ID


def settled(driver: Driver) -> tuple[str, str]:
    """Bring a group of the static members a (the leader) and b to a stable generation 2."""
    first = driver.joined(driver.join(instance_id="a")).member_id
    held = driver.join(instance_id="b")
    driver.join(first, instance_id="a")
    second = driver.joined(held).member_id
    driver.sync(second, 2, instance_id="b")
    driver.sync(first, 2, {first: b"A", second: b"B"}, instance_id="a")
    assert driver.group.state_name == "Stable"
    return first, second


def test_static_member_joins_without_a_member_id() -> None:
    driver = Driver()
    answer = driver.joined(driver.join(instance_id="a"))
    assert (answer.error_code, answer.members[0].group_instance_id) == (NONE, "a")


def test_restarted_follower_rejoins_without_a_rebalance() -> None:
    driver = Driver()
    first, second = settled(driver)
    kept = len(driver.persisted)

    answer = driver.joined(driver.join(instance_id="b"))

    assert (answer.error_code, answer.generation_id, answer.leader) == (NONE, 2, first)
    assert (answer.skip_assignment, answer.members) == (False, [])
    assert answer.member_id != second
    assert driver.group.state_name == "Stable"
    assert len(driver.persisted) == kept + 1
    part = driver.synced(driver.sync(answer.member_id, 2, instance_id="b"))
    assert part.assignment == b"B"


def test_restarted_leader_is_instructed_to_skip_the_assignment() -> None:
    driver = Driver()
    settled(driver)
    answer = driver.joined(driver.join(instance_id="a"))
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert [member.group_instance_id for member in answer.members] == ["b", "a"]
    part = driver.synced(driver.sync(answer.member_id, 2, instance_id="a"))
    assert part.assignment == b"A"


def test_restarted_leader_of_an_older_version_does_not_learn_that_it_leads() -> None:
    driver = Driver()
    member, _ = settled(driver)
    answer = driver.joined(driver.join(instance_id="a", version=8))
    assert (answer.leader, answer.members) == (member, [])
    assert answer.member_id != member


def test_replaced_static_member_is_fenced_in_every_request() -> None:
    driver = Driver()
    _, old = settled(driver)
    driver.join(instance_id="b")
    assert driver.beat(old, 2, instance_id="b") is FENCED
    assert driver.synced(driver.sync(old, 2, instance_id="b")).error_code is FENCED
    assert driver.joined(driver.join(old, instance_id="b")).error_code is FENCED
    assert driver.group.check_commit(old, 2, "b") is FENCED
    assert driver.leave((old, "b")).members[0].error_code is FENCED
    assert driver.beat(old, 2) is UNKNOWN


def test_pending_requests_of_a_replaced_static_member_are_fenced() -> None:
    driver = Driver()
    first, second = settled(driver)
    driver.join(first, instance_id="a")
    driver.join(second, instance_id="b")
    sync = driver.sync(second, 3, instance_id="b")
    # The leader may be assigning to the old id, so this starts the rebalance again.
    join = driver.join(instance_id="b")
    assert driver.synced(sync).error_code is FENCED
    assert driver.group.state_name == "PreparingRebalance"
    driver.join(instance_id="b")
    assert driver.joined(join).error_code is FENCED


def test_static_restart_that_changes_the_chosen_protocol_rebalances() -> None:
    driver = Driver()
    both = {"range": b"", "sticky": b""}
    member = driver.joined(driver.join(instance_id="a", protocols=both)).member_id
    driver.sync(member, 1, {}, instance_id="a")
    # It offers the chosen one still, but likes the other more.
    answer = driver.joined(driver.join(instance_id="a", protocols=dict(reversed(both.items()))))
    assert (answer.protocol_name, answer.generation_id) == ("sticky", 2)


def test_static_member_keeps_its_membership_until_its_session_ends() -> None:
    driver = Driver()
    first, second = settled(driver)
    driver.pass_time(9_999)
    assert driver.group.state_name == "Stable"
    assert driver.beat(first, 2, instance_id="a") is NONE
    driver.pass_time(1)
    assert driver.beat(second, 2, instance_id="b") is UNKNOWN
    assert driver.beat(first, 2, instance_id="a") is REBALANCE


def test_static_member_that_misses_the_rebalance_stays_in_the_generation() -> None:
    driver = Driver()
    first = driver.joined(driver.join(instance_id="a", rebalance_ms=5_000)).member_id
    held = driver.join(instance_id="b", rebalance_ms=5_000)
    driver.join(first, instance_id="a", rebalance_ms=5_000)
    second = driver.joined(held).member_id
    driver.sync(second, 2, instance_id="b")
    driver.sync(first, 2, {}, instance_id="a")
    held = driver.join(first, instance_id="a", rebalance_ms=5_000)

    driver.pass_time(5_000)

    assert {member.member_id for member in driver.joined(held).members} == {first, second}
    driver.sync(first, 3, {first: b"A", second: b"B"}, instance_id="a")
    # It has not synced by the end of another rebalance time-out: now it is out.
    driver.pass_time(5_000)
    assert driver.beat(second, 3, instance_id="b") is UNKNOWN


def test_static_members_keep_their_membership_when_none_rejoins() -> None:
    driver = Driver()
    first, second = settled(driver)
    lost = driver.join(first, instance_id="a", session_ms=200_000)
    driver.lose(lost)
    for _ in range(10):
        driver.pass_time(6_000)  # until the rebalance time-out is over
        driver.beat(second, 2, instance_id="b")
    assert driver.group.state_name == "PreparingRebalance"
    assert len(driver.group.description().members) == 2

    held = driver.join(instance_id="a")
    driver.join(second, instance_id="b")

    assert driver.joined(held).generation_id == 3


def test_a_static_member_returns_to_a_full_group() -> None:
    driver = Driver(ClassicSettings(initial_rebalance_delay_ms=0, max_size=2))
    settled(driver)
    assert driver.joined(driver.join(instance_id="b")).error_code is NONE
    full = driver.joined(driver.join(instance_id="c"))
    assert full.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("instance_id", ["a", "none"])
def test_instance_id_and_member_id_must_match(instance_id: str) -> None:
    driver = Driver()
    _, two = settled(driver)
    code = FENCED if instance_id == "a" else UNKNOWN
    assert driver.beat(two, 2, instance_id=instance_id) is code


def test_pending_id_of_a_dynamic_member_is_refused_for_a_static_one() -> None:
    driver = Driver()
    pending = driver.joined(driver.join()).member_id
    assert driver.joined(driver.join(pending, instance_id="a")).error_code is UNKNOWN
