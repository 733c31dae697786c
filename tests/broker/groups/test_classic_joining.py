"""Joining a classic group: which members may, with which protocols, and how often."""

from __future__ import annotations

import pytest

from rookery.broker.groups.settings import ClassicSettings
from rookery.errors import ErrorCode
from tests.broker.groups.driving import Driver

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1, 2**31 - 1])
def test_session_timeouts_out_of_bounds_are_refused(session_ms: int) -> None:
    driver = Driver()
    answer = driver.joined(driver.join(session_ms=session_ms))
    assert answer.error_code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.group.deadline_ms is None


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})], ids=["type", "none"]
)
def test_an_empty_group_needs_a_protocol(protocol_type: str, protocols: dict[str, bytes]) -> None:
    driver = Driver()
    token = driver.join(protocol_type=protocol_type, protocols=protocols)
    assert driver.joined(token).error_code is INCONSISTENT


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"sticky": b""}), ("consumer", {})],
    ids=["type", "protocol", "none"],
)
def test_new_member_must_share_a_protocol(protocol_type: str, protocols: dict[str, bytes]) -> None:
    driver = Driver()
    (member_id,) = driver.settle()
    for known in ("", member_id):
        token = driver.join(known, protocol_type=protocol_type, protocols=protocols)
        assert driver.joined(token).error_code is INCONSISTENT
    assert driver.group.state_name == "Stable"


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (["ab", "ab", "ba"], "a"),
        (["ab", "ba", "ba"], "b"),
        (["abc", "cb", "cba"], "c"),
        (["ab", "b", "ab"], "b"),
        (["ab", "ba"], "a"),
    ],
)
def test_protocol_with_most_votes_among_common_ones_is_chosen(
    offers: list[str], chosen: str
) -> None:
    driver = Driver()
    ids = {}
    for offer in offers:
        protocols = dict.fromkeys(offer, b"")
        ids[driver.come(protocols=protocols)[0]] = protocols
    tokens = [driver.join(member_id, protocols=offer) for member_id, offer in ids.items()]
    assert driver.joined(tokens[-1]).protocol_name == chosen


def test_emptied_group_can_switch_to_another_protocol() -> None:
    driver = Driver()
    (member_id,) = driver.settle()
    driver.leave((member_id, None))
    _, token = driver.come(protocol_type="connect", protocols={"sessioned": b"x"})
    assert driver.joined(token).error_code is NONE
    assert driver.group.description().protocol_type == "connect"


def test_full_group_accepts_only_existing_members() -> None:
    driver = Driver(ClassicSettings(initial_rebalance_delay_ms=0, max_size=2))
    first, second = driver.settle(2)
    refused = driver.joined(driver.join(version=3))
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert driver.joined(driver.join(second)).error_code is NONE
    assert driver.group.state_name == "Stable"
    driver.leave((first, None))
    assert driver.joined(driver.join()).error_code is ErrorCode.MEMBER_ID_REQUIRED


def test_last_member_to_rejoin_an_oversized_group_is_removed() -> None:
    driver = Driver()
    leader, follower = driver.settle(2)
    driver.settings = ClassicSettings(initial_rebalance_delay_ms=0, max_size=1)
    driver.restart()
    first = driver.join(leader)
    last = driver.join(follower)
    assert driver.joined(last).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.joined(first).error_code is NONE
    assert [member.member_id for member in driver.joined(first).members] == [leader]


def test_metadata_too_large_to_persist_is_refused() -> None:
    driver = Driver(ClassicSettings(initial_rebalance_delay_ms=0, max_bytes=2_000))
    big = {"range": bytes(1_500)}
    member_id, token = driver.come(protocols=big)
    assert driver.joined(token).error_code is NONE
    answer = driver.joined(driver.join(protocols=big))
    assert answer.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert driver.joined(driver.join(member_id, protocols=big)).error_code is NONE


def test_assignment_too_large_to_persist_restarts_the_rebalance() -> None:
    driver = Driver(ClassicSettings(initial_rebalance_delay_ms=0, max_bytes=2_000))
    first, second = driver.settle(2)
    driver.join(first)
    generation = driver.joined(driver.join(second)).generation_id
    follower = driver.sync(second, generation)
    leader = driver.sync(first, generation, {first: bytes(3_000)})
    assert driver.synced(leader).error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert driver.synced(follower).error_code is REBALANCE
    assert driver.group.state_name == "PreparingRebalance"


def test_rebalance_waits_for_a_pending_member_id_until_its_session_ends() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    pending = driver.joined(driver.join()).member_id
    assert driver.group.state_name == "Stable"
    driver.join(first)  # it leads, so the group rebalances
    driver.join(second)
    assert driver.group.state_name == "PreparingRebalance"

    driver.pass_time(10_000)

    assert driver.group.state_name == "CompletingRebalance"
    assert driver.joined(driver.join(pending)).error_code is UNKNOWN


def test_pending_member_id_can_leave() -> None:
    driver = Driver()
    (member,) = driver.settle()
    pending = driver.joined(driver.join()).member_id
    held = driver.join(member)
    assert held not in driver.answers
    assert driver.leave((pending, None)).members[0].error_code is NONE
    assert driver.joined(held).error_code is NONE


def test_unchanged_follower_is_answered_immediately() -> None:
    driver = Driver()
    _, two = driver.settle(2)
    generation = driver.group.epoch
    answer = driver.joined(driver.join(two))
    assert (answer.generation_id, answer.members) == (generation, [])
    assert driver.group.state_name == "Stable"
    driver.join(two, protocols={"range": b"more"})
    assert driver.group.state_name == "PreparingRebalance"


def test_older_pending_request_of_the_same_member_is_cancelled() -> None:
    driver = Driver()
    leader, follower = driver.settle(2)
    first = driver.join(leader)
    second = driver.join(leader)
    assert driver.joined(first).error_code is REBALANCE
    driver.join(follower)
    generation = driver.joined(second).generation_id
    first = driver.sync(follower, generation)
    second = driver.sync(follower, generation)
    assert driver.synced(first).error_code is REBALANCE
    assert second not in driver.answers


def test_disconnected_client_is_not_elected_leader() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    lost = driver.join(first)
    driver.lose(lost)
    held = driver.join(second)
    assert held not in driver.answers
    driver.pass_time(10_000)
    assert driver.joined(held).leader == second
    assert lost not in driver.answers


def test_new_member_that_disconnects_before_it_gets_its_id_is_removed() -> None:
    driver = Driver()
    (first,) = driver.settle()
    lost = driver.join(version=3)
    driver.lose(lost)
    answer = driver.joined(driver.join(first))
    assert [member.member_id for member in answer.members] == [first]


def test_pending_sync_of_a_disconnected_client_is_not_answered() -> None:
    driver = Driver()
    first, second = driver.settle(2)
    driver.join(first)
    generation = driver.joined(driver.join(second)).generation_id
    lost = driver.sync(second, generation)
    driver.lose(lost)
    driver.sync(first, generation, {second: b"B"})
    assert lost not in driver.answers
    assert driver.synced(driver.sync(second, generation)).assignment == b"B"
    driver.pass_time(10_000)
    assert driver.beat(second, generation) is UNKNOWN
