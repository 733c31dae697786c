"""Consumer groups by heartbeats and answers: admission, fencing and assignments."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.broker.coordination.machine import ClientGone, Tick
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.settings import ConsumerSettings
from rookery.errors import Corrupt, ErrorCode
from tests.broker.groups.beats import Cluster, Group, Reader, as_places, as_topics, settle

JOIN: dict[str, Any] = {
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 10_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(t=4, u=2)


@pytest.fixture
def group(cluster: Cluster) -> Group:
    return Group(cluster)


def reader(group: Group, name: str, *topics: str, **wants: Any) -> Reader:
    return Reader(group, name, subscribed_topic_names=list(topics or ["t"]), **wants)


def test_first_member_gets_all_partitions_immediately(group: Group, cluster: Cluster) -> None:
    answer = group.beat(**JOIN)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "m", 1)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment is not None
    assert as_places(answer.assignment.topic_partitions) == cluster.places("t")
    assert group.machine.state_name == "Stable"
    assert group.persists == 1


def test_heartbeat_without_changes_gets_no_assignment(group: Group, cluster: Cluster) -> None:
    group.beat(**JOIN)
    group.beat(member_id="m", member_epoch=1, topic_partitions=as_topics(cluster.places("t")))
    answer = group.beat(member_id="m", member_epoch=1)
    assert answer.error_code is ErrorCode.NONE
    assert answer.assignment is None
    assert group.persists == 1


def test_assignment_is_repeated_until_the_member_confirms_it(
    group: Group, cluster: Cluster
) -> None:
    group.beat(**JOIN)
    # The answer was lost; the client asks again as if it had had it.
    again = group.beat(member_id="m", member_epoch=1)
    assert again.assignment is not None
    assert as_places(again.assignment.topic_partitions) == cluster.places("t")
    owned = as_topics(cluster.places("t"))
    assert group.beat(member_id="m", member_epoch=1, topic_partitions=owned).assignment is None
    assert group.beat(member_id="m", member_epoch=1).assignment is None


def test_assignment_is_repeated_a_bounded_number_of_times(group: Group) -> None:
    group.beat(**JOIN)
    told = [group.beat(member_id="m", member_epoch=1).assignment for _ in range(20)]
    assert None not in told[:9]
    assert set(told[9:]) == {None}


def test_new_coordinator_repeats_the_assignment_once(group: Group, cluster: Cluster) -> None:
    group.beat(**JOIN)
    group.beat(member_id="m", member_epoch=1, topic_partitions=as_topics(cluster.places("t")))
    group.fail_over()
    assert group.beat(member_id="m", member_epoch=1).assignment is not None
    assert group.beat(member_id="m", member_epoch=1).assignment is None


def test_version_0_gets_its_member_id_from_the_server(group: Group) -> None:
    assert group.beat(version=0, **(JOIN | {"member_id": ""})).member_id == "id-0"
    refused = group.beat(version=1, **(JOIN | {"member_id": ""}))
    assert refused.error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": as_topics(frozenset({(b"x" * 16, 0)}))}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": ["x" * 249] * 5_000}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_refused_heartbeat_changes_nothing(
    group: Group, change: dict[str, Any], code: ErrorCode
) -> None:
    answer = group.beat(**(JOIN | change))
    assert answer.error_code is code
    assert answer.error_message
    assert group.persists == 0
    assert group.machine.is_empty


def test_full_group_refuses_new_members(cluster: Cluster) -> None:
    group = Group(cluster, ConsumerSettings(max_size=1))
    assert group.beat(**JOIN).error_code is ErrorCode.NONE
    refused = group.beat(**(JOIN | {"member_id": "n"}))
    assert refused.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.beat(**JOIN).error_code is ErrorCode.NONE


def test_partition_is_assigned_only_after_its_owner_revoked_it(
    group: Group, cluster: Cluster
) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    first.beat()
    first.reconcile()
    second.beat()
    assert second.told == frozenset()
    assert group.machine.state_name == "Reconciling"

    first.beat()  # must give up two, and has not yet
    assert len(first.told) == 2
    assert first.epoch == 1
    first.beat()
    second.beat()
    assert second.told == frozenset()

    first.reconcile()
    first.beat()  # says that it has
    assert first.epoch == 2
    second.beat()
    assert second.told == cluster.places("t") - first.owned
    assert second.epoch == 2
    assert group.machine.state_name == "Stable"


def test_member_that_waits_for_partitions_gets_a_short_heartbeat_interval(group: Group) -> None:
    settle(reader(group, "one"))
    answer = group.beat(**JOIN)
    assert answer.heartbeat_interval_ms == 500


def test_member_that_does_not_revoke_in_time_is_fenced(group: Group, cluster: Cluster) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    settle(first)
    second.beat()
    first.beat()
    group.now_ms += 9_999
    first.beat()
    second.beat()
    group.on(Tick())
    assert len(second.told) == 0
    group.now_ms += 1
    assert group.machine.deadline_ms is not None
    assert group.machine.deadline_ms <= group.now_ms
    group.on(Tick())
    second.beat()
    assert second.told == cluster.places("t")
    assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_removed(group: Group, cluster: Cluster) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    settle(first, second)
    group.now_ms += 40_000
    second.beat()
    group.now_ms += 5_000
    group.on(Tick())
    assert group.machine.state_name == "Assigning"
    settle(second)
    assert second.owned == cluster.places("t")


def test_previous_epoch_is_accepted_after_a_lost_answer(group: Group) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    settle(first)
    settle(second, first)
    assert first.epoch == 2
    group.cluster.grow("t", 6)
    assert first.beat(is_lost=True) is ErrorCode.NONE
    assert first.epoch == 2
    assert first.beat() is ErrorCode.NONE
    assert first.epoch == 3


def test_previous_epoch_is_fenced_if_the_member_claims_foreign_partitions(
    group: Group, cluster: Cluster
) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    settle(first)
    settle(second, first)
    cluster.grow("t", 6)
    first.beat(is_lost=True)
    for owned in (as_topics(cluster.places("t")), None):
        answer = group.beat(member_id="one", member_epoch=2, topic_partitions=owned)
        assert answer.error_code is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [1, 3])
def test_any_other_epoch_is_fenced(group: Group, epoch: int) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    settle(first, second)
    settle(first, second, reader(group, "three"))
    assert first.epoch == 3
    answer = group.beat(member_id="one", member_epoch=epoch + (epoch == 3))
    assert answer.error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_rejoining_member_gets_a_new_epoch_and_its_old_one_is_fenced(group: Group) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    settle(first, second)
    settle(first, second)
    group.cluster.grow("t", 6)
    settle(first, second)
    old = first.epoch
    first.forget()
    first.beat()
    assert first.epoch > old
    answer = group.beat(member_id="one", member_epoch=old)
    assert answer.error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_repeated_join_after_a_lost_answer_changes_nothing(group: Group) -> None:
    assert group.beat(**JOIN).member_epoch == 1
    again = group.beat(**JOIN)
    assert again.member_epoch == 1
    assert again.assignment is not None
    assert group.persists == 1


def test_leaving_member_releases_all_partitions(group: Group, cluster: Cluster) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    settle(first, second)
    answer = first.leave()
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, -1)
    settle(second)
    assert second.owned == cluster.places("t")
    second.leave()
    assert group.machine.state_name == "Empty"
    assert group.machine.deadline_ms is None


def test_created_extended_and_deleted_topics_are_noticed(group: Group, cluster: Cluster) -> None:
    member = reader(group, "one", "t", "new")
    settle(member)
    cluster.create("new", 3)
    cluster.grow("t", 5)
    settle(member)
    assert member.owned == cluster.places("t", "new")
    cluster.delete("t")
    settle(member)
    assert member.owned == cluster.places("new")
    assert group.machine.state_name == "Stable"


def test_topic_without_subscribers_changes_nothing(group: Group, cluster: Cluster) -> None:
    member = reader(group, "one")
    settle(member)
    persists = group.persists
    cluster.create("other", 3)
    member.beat()
    assert group.persists == persists


def test_regular_expression_matches_topics_created_later(group: Group, cluster: Cluster) -> None:
    member = Reader(group, "one", subscribed_topic_names=[], subscribed_topic_regex="team-.*|u")
    settle(member)
    assert member.owned == cluster.places("u")
    cluster.create("team-a", 2)
    settle(member)
    assert member.owned == cluster.places("u", "team-a")
    assert group.machine.subscribes("team-a")
    assert not group.machine.subscribes("t")


def test_regular_expression_matches_only_topics_that_the_member_may_describe(
    group: Group, cluster: Cluster
) -> None:
    cluster.hide(one="u")
    first, second = (
        Reader(group, name, subscribed_topic_names=[], subscribed_topic_regex="u|team-.*")
        for name in ("one", "two")
    )
    settle(first, second)
    cluster.create("team-a", 2)
    settle(first, second)
    assert not first.owned & cluster.places("u")
    assert first.owned | second.owned == cluster.places("u", "team-a")
    assert second.owned >= cluster.places("u")


def test_changed_rules_change_the_matches_of_a_regular_expression(
    group: Group, cluster: Cluster
) -> None:
    wants = {"subscribed_topic_names": [], "subscribed_topic_regex": "[tu]"}
    first, second = Reader(group, "one", **wants), Reader(group, "two", **wants)
    settle(first, second)
    cluster.hide(one="t", two="u")
    settle(first, second)
    swapped = first.owned, second.owned
    cluster.hide(one="u", two="t")
    settle(first, second)
    assert swapped == (cluster.places("u"), cluster.places("t"))
    assert (first.owned, second.owned) == (cluster.places("t"), cluster.places("u"))


def test_member_of_a_new_coordinator_gets_only_topics_that_it_may_describe(
    group: Group, cluster: Cluster
) -> None:
    wants = {"subscribed_topic_names": [], "subscribed_topic_regex": "[tu]"}
    cluster.hide(one="u")
    first, second = Reader(group, "one", **wants), Reader(group, "two", **wants)
    settle(first, second)
    group.fail_over()
    second.step()
    second.leave()
    settle(first)
    assert first.owned == cluster.places("t")


def test_failover_without_changes_keeps_the_epoch(group: Group, cluster: Cluster) -> None:
    wants = {"subscribed_topic_names": [], "subscribed_topic_regex": "[tu]"}
    cluster.hide(nobody="u")
    first, second = Reader(group, "one", **wants), Reader(group, "two", **wants)
    settle(first, second)
    epoch = group.machine.epoch
    group.fail_over()
    settle(first, second)
    assert group.machine.epoch == epoch


def test_changed_subscription_is_applied(group: Group, cluster: Cluster) -> None:
    member = reader(group, "one")
    settle(member)
    member.wants, member.is_full = {"subscribed_topic_names": ["u"]}, True
    settle(member)
    assert member.owned == cluster.places("u")


def test_assignor_with_most_votes_is_used(group: Group) -> None:
    readers = [reader(group, name, server_assignor="range") for name in ("a", "b")]
    settle(*readers, reader(group, "c"))
    assert group.machine.description().assignor == "range"
    assert sorted(at for _, at in readers[0].owned) == [0, 1]


class TestStatic:
    def test_assignment_of_an_absent_static_member_is_reserved(self, group: Group) -> None:
        first, second = reader(group, "one", instance_id="i"), reader(group, "two")
        settle(first, second)
        had, epoch = first.owned, first.epoch
        assert first.leave(-2).member_epoch == -2
        settle(second)
        assert len(second.owned) == 2
        first.member_id = "uno"
        settle(first)
        assert (first.owned, first.epoch) == (had, epoch)
        fenced = group.beat(member_id="one", member_epoch=epoch, instance_id="i")
        assert fenced.error_code is ErrorCode.FENCED_INSTANCE_ID

    def test_assignment_of_an_absent_member_is_released_after_its_session(
        self, group: Group, cluster: Cluster
    ) -> None:
        first, second = reader(group, "one", instance_id="i"), reader(group, "two")
        settle(first, second)
        first.leave(-2)
        group.now_ms += 44_999
        second.beat()
        group.now_ms += 1
        group.on(Tick())
        settle(second)
        assert second.owned == cluster.places("t")

    def test_present_member_cannot_be_replaced(self, group: Group) -> None:
        settle(reader(group, "one", instance_id="i"))
        other = reader(group, "two", instance_id="i")
        assert other.beat() is ErrorCode.UNRELEASED_INSTANCE_ID
        assert group.beat(member_id="two", member_epoch=1).error_code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_absent_member_cannot_commit(self, group: Group) -> None:
        member = reader(group, "one", instance_id="i")
        settle(member)
        member.leave(-2)
        code = group.machine.check_commit("one", 1, "i")
        assert code is ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("one", 1, ErrorCode.NONE),
        ("one", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("one", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("two", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commit_requires_a_member_in_its_current_epoch(
    group: Group, member_id: str, epoch: int, code: ErrorCode
) -> None:
    assert group.machine.check_commit("", -1, None) is ErrorCode.NONE
    settle(reader(group, "one"))
    assert group.machine.check_commit(member_id, epoch, None) is code


def test_successor_continues_without_a_rebalance(group: Group) -> None:
    first, second = reader(group, "one"), reader(group, "two", instance_id="i")
    settle(first, second)
    before, owned, persists = group.machine.description(), first.owned, group.persists
    group.now_ms += 44_000
    group.fail_over()
    group.now_ms += 44_000
    group.on(Tick())
    assert first.beat() is second.beat() is ErrorCode.NONE
    assert group.machine.description() == before
    assert (first.told, group.persists) == (owned, persists)


def test_successor_notices_changed_topics(group: Group, cluster: Cluster) -> None:
    member = reader(group, "one")
    settle(member)
    group.fail_over()
    cluster.grow("t", 9)
    settle(member)
    assert member.owned == cluster.places("t")


def test_successor_waits_for_pending_revocations(group: Group) -> None:
    first, second = reader(group, "one"), reader(group, "two")
    settle(first)
    second.beat()
    first.beat()
    group.fail_over()
    second.beat()
    assert second.told == frozenset()
    group.now_ms += 10_000
    group.on(Tick())
    second.beat()
    assert len(second.told) == 4


def test_epochs_continue_after_those_of_another_protocol(cluster: Cluster) -> None:
    group = Group(cluster)
    group.machine = ConsumerGroupMachine.new("readers", group.settings, 41)
    assert group.beat(**JOIN).member_epoch == 42


def test_disconnected_client_causes_no_effect(group: Group) -> None:
    assert group.on(ClientGone("token")) == []


@pytest.mark.parametrize("body", [b"", b"\x00\x00rubbish", b"\x00\x63"])
def test_malformed_group_is_refused(body: bytes) -> None:
    with pytest.raises(Corrupt):
        ConsumerGroupMachine.load("readers", body, ConsumerSettings(), 0)


def test_hundred_members_share_a_thousand_partitions(group: Group, cluster: Cluster) -> None:
    cluster.create("large", 1_000)
    readers = [reader(group, f"reader-{at:03}", "large") for at in range(100)]
    for member in readers:
        member.beat()
        member.reconcile()
    for _ in range(3):
        for member in readers:
            member.beat()
            member.reconcile()
    assert [len(member.owned) for member in readers] == [10] * 100
