"""A classic group after its coordinator was lost."""

from __future__ import annotations

import pytest

from rookery.broker.groups.classic.machine import ClassicGroupMachine
from rookery.errors import Corrupt, ErrorCode
from tests.broker.groups.driving import AT_ONCE, GROUP, Driver

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def test_stable_group_survives_failover_without_a_rebalance() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    generation, before = driver.group.epoch, driver.group.description()
    driver.pass_time(9_000)
    driver.restart()
    assert driver.group.description() == before
    # Every member has its full time again.
    driver.pass_time(9_999)
    assert driver.beat(first, generation) is driver.beat(second, generation) is NONE
    assert driver.synced(driver.sync(second, generation)).assignment == f"part of {second}".encode()
    assert driver.group.check_commit(first, generation, None) is NONE
    answer = driver.joined(driver.join(second))
    assert (answer.generation_id, driver.group.state_name) == (generation, "Stable")


def test_announced_generation_is_completed_after_failover() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    driver.join(first)
    generation = driver.joined(driver.join(second)).generation_id
    driver.restart()
    assert driver.group.state_name == "CompletingRebalance"
    again = driver.joined(driver.join(first))
    assert (again.generation_id, len(again.members)) == (generation, 2)
    held = driver.sync(second, generation)
    driver.sync(first, generation, {second: b"B"})
    assert driver.synced(held).assignment == b"B"


def test_successor_releases_followers_whose_leader_does_not_return() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    driver.join(first)
    generation = driver.joined(driver.join(second)).generation_id
    driver.restart()
    held = driver.sync(second, generation)
    driver.pass_time(10_000)
    assert driver.synced(held).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.beat(first, generation) is UNKNOWN


def test_incomplete_rebalance_restarts_after_failover() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    generation = driver.group.epoch
    newcomer, _ = driver.come()
    driver.restart()
    assert driver.group.state_name == "Stable"
    assert driver.joined(driver.join(newcomer)).error_code is UNKNOWN
    newcomer, held = driver.come()
    driver.join(first)
    driver.join(second)
    assert driver.joined(held).generation_id == generation + 1


def test_emptied_group_continues_its_generations_after_failover() -> None:
    driver = Driver()
    (member,) = driver.settle()
    driver.leave((member, None))
    driver.restart()
    assert (driver.group.state_name, driver.group.epoch) == ("Empty", 2)
    _, token = driver.come()
    assert driver.joined(token).generation_id == 3


def test_replaced_static_member_is_known_by_its_new_id_after_failover() -> None:
    driver = Driver()
    old = driver.joined(driver.join(instance_id="a")).member_id
    driver.sync(old, 1, {old: b"A"}, instance_id="a")
    new = driver.joined(driver.join(instance_id="a")).member_id
    driver.restart()
    assert driver.beat(new, 1, instance_id="a") is NONE
    assert driver.beat(old, 1, instance_id="a") is ErrorCode.FENCED_INSTANCE_ID


def test_truncated_state_is_refused() -> None:
    driver = Driver()
    driver.settle(2)
    body = driver.persisted[-1]
    for size in range(len(body)):
        with pytest.raises(Corrupt):
            ClassicGroupMachine.load(GROUP, body[:size], AT_ONCE, 0)


@pytest.mark.parametrize("body", [b"\x00\x01", b"\x7f\xff", b"\x00\x00\x02g\x09"])
def test_malformed_state_is_refused(body: bytes) -> None:
    with pytest.raises(Corrupt):
        ClassicGroupMachine.load(GROUP, body, AT_ONCE, 0)


def test_state_of_another_group_is_refused() -> None:
    driver = Driver()
    driver.settle()
    with pytest.raises(Corrupt, match="of group readers"):
        ClassicGroupMachine.load("writers", driver.persisted[-1], AT_ONCE, 0)
