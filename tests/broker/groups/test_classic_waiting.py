"""What a classic group waits for, and for how long."""

from __future__ import annotations

import pytest

from rookery.broker.groups.settings import ClassicSettings
from rookery.errors import ErrorCode
from tests.broker.groups.driving import Driver

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_each_new_member_extends_the_initial_rebalance_delay() -> None:
    driver = Driver(ClassicSettings(initial_rebalance_delay_ms=100))
    _, first = driver.come()
    driver.pass_time(60)
    _, second = driver.come()
    driver.pass_time(60)
    assert not {first, second} & driver.answers.keys()
    driver.pass_time(80)
    assert driver.joined(first).generation_id == driver.joined(second).generation_id == 1


def test_initial_rebalance_delay_is_bounded_by_the_rebalance_timeout() -> None:
    driver = Driver(ClassicSettings(initial_rebalance_delay_ms=100))
    _, first = driver.come(rebalance_ms=350)
    for _ in range(3):
        driver.pass_time(99)
        driver.come(rebalance_ms=350)
        assert first not in driver.answers
    driver.pass_time(53)
    assert driver.joined(first).error_code is NONE


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    held = driver.join(first)
    for _ in range(9):
        driver.pass_time(6_000)
        assert driver.beat(second, driver.group.epoch) is REBALANCE
    driver.pass_time(6_000)
    assert [member.member_id for member in driver.joined(held).members] == [first]
    assert driver.beat(second, driver.group.epoch) is UNKNOWN


def test_new_leader_is_chosen_if_the_leader_does_not_rejoin() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    driver.leave((first, None))
    answer = driver.joined(driver.join(second))
    assert answer.leader == second
    assert [member.member_id for member in answer.members] == [second]


def test_member_without_heartbeats_is_removed_after_its_session() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    generation = driver.group.epoch
    driver.pass_time(9_000)
    assert driver.beat(first, generation) is NONE
    driver.pass_time(999)
    assert driver.group.state_name == "Stable"
    driver.pass_time(1)
    assert driver.beat(second, generation) is UNKNOWN
    assert driver.beat(first, generation) is REBALANCE


def test_member_with_a_pending_request_needs_no_heartbeat() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    held = driver.join(first)
    for _ in range(5):
        driver.pass_time(9_000)
        driver.beat(second, driver.group.epoch)
    driver.join(second)
    assert driver.joined(held).error_code is NONE


def test_version_0_uses_the_session_timeout_as_rebalance_timeout() -> None:
    driver = Driver()
    first = driver.joined(driver.join(version=0, session_ms=7_000)).member_id
    held = driver.join(version=0, session_ms=7_000)
    driver.pass_time(3_500)
    driver.beat(first, 1)
    driver.pass_time(3_499)
    assert held not in driver.answers
    driver.pass_time(1)
    assert [member.member_id for member in driver.joined(held).members] != [first]


def test_new_member_is_refused_when_a_rebalance_does_not_end() -> None:
    settings = ClassicSettings(initial_rebalance_delay_ms=0, new_member_timeout_ms=20_000)
    driver = Driver(settings)
    (member,) = driver.settle()
    _, held = driver.come()
    for _ in range(4):
        driver.pass_time(5_000)
        driver.beat(member, driver.group.epoch)
    assert driver.joined(held).error_code is UNKNOWN


def test_followers_are_released_if_the_leader_never_syncs() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    driver.join(first)
    generation = driver.joined(driver.join(second)).generation_id
    held = driver.sync(second, generation)
    for _ in range(10):
        driver.beat(first, generation)
        driver.pass_time(6_000)
    assert driver.synced(held).error_code is REBALANCE
    assert driver.beat(first, generation) is UNKNOWN
    answer = driver.joined(driver.join(second))
    assert (answer.leader, answer.generation_id) == (second, generation + 1)


def test_follower_that_never_syncs_is_removed_from_a_stable_group() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    driver.join(first)
    generation = driver.joined(driver.join(second)).generation_id
    driver.sync(first, generation, {})
    for _ in range(10):
        assert driver.beat(first, generation) is driver.beat(second, generation) is NONE
        driver.pass_time(6_000)
    assert driver.beat(second, generation) is UNKNOWN
    assert driver.beat(first, generation) is REBALANCE


def test_new_member_releases_followers_that_wait_for_the_assignment() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    driver.join(first)
    generation = driver.joined(driver.join(second)).generation_id
    held = driver.sync(second, generation)
    driver.come()
    assert driver.synced(held).error_code is REBALANCE
    assert driver.synced(driver.sync(first, generation)).error_code is REBALANCE


@pytest.mark.parametrize(
    ("generation", "protocol", "version", "code"),
    [
        (1, ("consumer", "range"), 5, NONE),
        (0, ("consumer", "range"), 5, ILLEGAL),
        (2, ("consumer", "range"), 5, ILLEGAL),
        (1, ("connect", "range"), 5, INCONSISTENT),
        (1, ("consumer", "sticky"), 5, INCONSISTENT),
        (1, (None, None), 5, INCONSISTENT),
        (1, (None, None), 4, NONE),
    ],
)
def test_sync_is_checked_for_generation_and_protocol(
    generation: int, protocol: tuple[str | None, str | None], version: int, code: ErrorCode
) -> None:
    driver = Driver()
    member, _ = driver.come()
    token = driver.sync(member, generation, {}, version=version, protocol=protocol)
    assert driver.synced(token).error_code is code


def test_hundred_members_join_in_one_generation() -> None:
    driver = Driver(ClassicSettings())
    comers = [driver.come() for _ in range(100)]
    driver.pass_time(100)
    assert {driver.joined(token).generation_id for _, token in comers} == {1}
    leader = driver.joined(comers[0][1])
    assert len(leader.members) == 100
    held = [driver.sync(member_id, 1) for member_id, _ in comers[1:]]
    driver.sync(leader.member_id, 1, {member_id: member_id.encode() for member_id, _ in comers})
    parts = {driver.synced(token).assignment.decode() for token in held}
    assert parts == {member_id for member_id, _ in comers[1:]}
    # Kept once for the generation, once for its assignment.
    assert len(driver.persisted) == 2
