"""A classic group: joining, syncing, heartbeats, leaving, time."""

from __future__ import annotations

import pytest

from rookery.errors import ErrorCode
from rookery.wire.protocols.consumer import ConsumerProtocolSubscription, write_subscription
from tests.broker.groups.driving import Driver

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
ILLEGAL = ErrorCode.ILLEGAL_GENERATION


def in_state(state: str) -> tuple[Driver, str]:
    """Return a group in a state, and its only member that was ever answered."""
    driver = Driver()
    if state == "Empty":
        return driver, "nobody"
    member_id, _ = driver.come()
    if state != "CompletingRebalance":
        driver.sync(member_id, 1, {member_id: b"all"})
    if state == "PreparingRebalance":
        driver.come()
    if state == "Dead":
        driver.group.close(ErrorCode.NOT_COORDINATOR)
    assert driver.group.state_name == state
    return driver, member_id


STATES = ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
HEARTBEATS = dict(zip(STATES, [UNKNOWN, REBALANCE, NONE, NONE, GONE], strict=True))
SYNCS = dict(zip(STATES, [UNKNOWN, REBALANCE, NONE, NONE, GONE], strict=True))
COMMITS = dict(zip(STATES, [UNKNOWN, NONE, REBALANCE, NONE, GONE], strict=True))
OUTSIDE_COMMITS = dict(zip(STATES, [NONE, UNKNOWN, UNKNOWN, UNKNOWN, GONE], strict=True))
IN_TXN_COMMITS = dict(zip(STATES, [UNKNOWN, NONE, NONE, NONE, GONE], strict=True))
LEAVES = {"Empty": UNKNOWN, "PreparingRebalance": NONE, "CompletingRebalance": NONE, "Stable": NONE}
# What a member that joins again as it is gets, and what the group is then.
REJOINS: dict[str, tuple[ErrorCode | None, str]] = {
    "Empty": (UNKNOWN, "Empty"),
    "PreparingRebalance": (NONE, "CompletingRebalance"),
    "CompletingRebalance": (NONE, "CompletingRebalance"),
    "Stable": (NONE, "CompletingRebalance"),  # it leads, and so has a reason
    "Dead": (GONE, "Dead"),
}


@pytest.mark.parametrize("state", STATES)
def test_heartbeat_in_each_state(state: str) -> None:
    driver, member_id = in_state(state)
    assert driver.beat(member_id, 1) is HEARTBEATS[state]


@pytest.mark.parametrize("state", STATES)
def test_sync_in_each_state(state: str) -> None:
    driver, member_id = in_state(state)
    token = driver.sync(member_id, 1, {member_id: b"all"})
    assert driver.synced(token).error_code is SYNCS[state]


@pytest.mark.parametrize("state", STATES)
def test_commit_in_each_state(state: str) -> None:
    driver, member_id = in_state(state)
    group = driver.group
    assert group.check_commit(member_id, 1, None) is COMMITS[state]
    assert group.check_commit("", -1, None) is OUTSIDE_COMMITS[state]
    assert group.check_commit(member_id, 1, None, is_transactional=True) is IN_TXN_COMMITS[state]


@pytest.mark.parametrize("state", STATES[:-1])
def test_leave_in_each_state(state: str) -> None:
    driver, member_id = in_state(state)
    answer = driver.leave((member_id, None))
    assert [member.error_code for member in answer.members] == [LEAVES[state]]


def test_leaving_a_dead_group_is_refused_for_the_whole_request() -> None:
    driver, member_id = in_state("Dead")
    answer = driver.leave((member_id, None))
    assert (answer.error_code, answer.members) == (GONE, [])


@pytest.mark.parametrize("state", STATES)
def test_join_again_in_each_state(state: str) -> None:
    driver, member_id = in_state(state)
    answer = driver.joined(driver.join(member_id))
    assert (answer.error_code, driver.group.state_name) == REJOINS[state]


def test_commit_checks_member_generation_and_instance() -> None:
    driver = Driver()
    token = driver.join(instance_id="one")
    member_id = driver.joined(token).member_id
    driver.sync(member_id, 1, {}, instance_id="one")
    check = driver.group.check_commit
    assert check(member_id, 1, "one") is NONE
    assert check(member_id, 0, None) is ILLEGAL
    assert check(member_id, 2, None) is ILLEGAL
    assert check("other", 1, None) is UNKNOWN
    assert check("other", 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert check(member_id, 1, "two") is UNKNOWN
    assert check("", -1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert check("", -1, None, is_transactional=True) is NONE


@pytest.mark.parametrize("version", range(10))
def test_single_member_of_any_version_gets_its_own_assignment(version: int) -> None:
    driver = Driver()
    if version < 4:
        token = driver.join(version=version)
    else:
        _, token = driver.come(version=version)
    joined = driver.joined(token)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
    assert joined.leader == joined.member_id == joined.members[0].member_id
    assert joined.members[0].metadata == b"r"

    sync_version = min(version, 5)
    answer = driver.sync(joined.member_id, 1, {joined.member_id: b"all"}, version=sync_version)

    assert driver.synced(answer).assignment == b"all"
    assert driver.beat(joined.member_id, 1, version=min(version, 4)) is NONE
    assert driver.leave((joined.member_id, None), version=min(version, 5)).error_code is NONE
    assert (driver.group.state_name, driver.group.epoch) == ("Empty", 2)


def test_leader_sees_all_members_and_each_member_gets_its_assignment() -> None:
    driver = Driver()
    first, _ = driver.come()
    second, held = driver.come(protocols={"range": b"2"})
    assert held not in driver.answers

    leading = driver.joined(driver.join(first))

    following = driver.joined(held)
    assert [member.metadata for member in leading.members] == [b"r", b"2"]
    assert (following.members, following.leader) == ([], first)
    waits = driver.sync(second, 2)
    assert waits not in driver.answers
    driver.sync(first, 2, {first: b"A", second: b"B"})
    assert driver.synced(waits).assignment == b"B"
    assert driver.synced(driver.sync(second, 2)).assignment == b"B"


def test_member_omitted_by_the_leader_gets_an_empty_assignment() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    driver.join(first)
    generation = driver.joined(driver.join(second)).generation_id
    driver.sync(first, generation, {first: b"A"})
    assert driver.synced(driver.sync(second, generation)).assignment == b""


def test_members_that_leave_in_one_request_get_separate_codes() -> None:
    driver = Driver()
    (first,) = driver.settle()
    driver.join(instance_id="a")
    driver.join(instance_id="b")
    driver.join(first)
    ids = {m.instance_id: m.member_id for m in driver.group.description().members}
    answer = driver.leave(
        ("", "a"),
        (ids["b"], "b"),
        (first, "a"),
        ("", "c"),
        ("none", None),
        (first, None),
        ("", None),
    )
    codes = [member.error_code for member in answer.members]
    # By the time that (one, "a") is looked at, no member is "a" any more.
    assert codes == [NONE, NONE, UNKNOWN, UNKNOWN, UNKNOWN, NONE, UNKNOWN]
    assert (answer.error_code, driver.group.state_name) == (NONE, "Empty")


def test_leaving_member_has_its_pending_requests_answered() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    held = driver.join(first)
    driver.leave((first, None))
    assert driver.joined(held).error_code is UNKNOWN
    driver.resettle([second])
    three, _ = driver.come()
    driver.join(second)
    held = driver.sync(three, driver.group.epoch)
    driver.leave((three, None))
    assert driver.synced(held).error_code is UNKNOWN


def test_last_member_to_leave_ends_the_generation_durably() -> None:
    driver = Driver()
    (member,) = driver.settle()
    kept = len(driver.persisted)
    driver.leave((member, None))
    assert (driver.group.state_name, driver.group.epoch) == ("Empty", 2)
    assert driver.group.is_empty
    assert len(driver.persisted) == kept + 1
    assert driver.group.deadline_ms is None


def test_dead_group_answers_all_pending_requests() -> None:
    driver = Driver()
    member, _ = driver.settle(2)
    held = driver.join(member)
    driver.take(driver.group.close(ErrorCode.NOT_COORDINATOR))
    assert driver.joined(held).error_code is ErrorCode.NOT_COORDINATOR
    assert driver.joined(driver.join()).error_code is GONE
    assert driver.group.deadline_ms is None


def test_heartbeats_are_not_persisted_and_do_not_move_the_deadline() -> None:
    driver = Driver()
    (member,) = driver.settle()
    kept, due = len(driver.persisted), driver.group.deadline_ms
    for _ in range(100):
        driver.now_ms += 10
        assert driver.beat(member, 1) is NONE
    assert (len(driver.persisted), driver.group.deadline_ms) == (kept, due)


def test_description_shows_the_protocol_of_a_stable_group_only() -> None:
    driver = Driver()
    (member,) = driver.settle()
    stable = driver.group.description()
    assert stable[:4] == ("Stable", "consumer", "range", 1)
    assert stable.members == [
        (member, None, "client", "/127.0.0.1", b"r", b"part of " + member.encode())
    ]
    driver.come()
    preparing = driver.group.description()
    assert preparing[:4] == ("PreparingRebalance", "consumer", "", 1)
    assert preparing.members[0] == stable.members[0]._replace(metadata=b"")


def subscription(*topics: str) -> dict[str, bytes]:
    """Return what a consumer of these topics joins with."""
    return {"range": write_subscription(ConsumerProtocolSubscription(topics=list(topics)))}


def test_stable_group_subscribes_to_the_topics_of_its_members() -> None:
    driver = Driver()
    assert not driver.group.subscribes("a")
    member, _ = driver.come(protocols=subscription("a", "b"))
    assert driver.group.subscribes("c")  # not settled yet: it may be about to
    driver.sync(member, 1, {})
    assert [driver.group.subscribes(topic) for topic in "abc"] == [True, True, False]
    driver.join(member, protocols=subscription("c"))
    driver.sync(member, 2, {})
    assert [driver.group.subscribes(topic) for topic in "abc"] == [False, False, True]


@pytest.mark.parametrize(
    ("protocol_type", "metadata"), [("connect", b"\0\0"), ("consumer", b"?")], ids=["kind", "bytes"]
)
def test_unreadable_subscription_counts_as_subscribed_to_everything(
    protocol_type: str, metadata: bytes
) -> None:
    driver = Driver()
    how = {"protocol_type": protocol_type, "protocols": {"range": metadata}}
    member, _ = driver.come(**how)
    driver.sync(member, 1, {}, protocol=(protocol_type, "range"))
    assert driver.group.state_name == "Stable"
    assert driver.group.subscribes("anything")
