"""Consumer groups by heartbeats and answers: who is let in, who is fenced, who gets what, when."""

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
    one, two = reader(group, "one"), reader(group, "two")
    one.beat()
    one.reconcile()
    two.beat()
    assert two.told == frozenset()
    assert group.machine.state_name == "Reconciling"

    one.beat()  # is told to give up two, and has not yet
    assert len(one.told) == 2
    assert one.epoch == 1
    one.beat()
    two.beat()
    assert two.told == frozenset()

    one.reconcile()
    one.beat()  # says that it has
    assert one.epoch == 2
    two.beat()
    assert two.told == cluster.places("t") - one.owned
    assert two.epoch == 2
    assert group.machine.state_name == "Stable"


def test_member_that_waits_for_partitions_gets_a_short_heartbeat_interval(group: Group) -> None:
    settle(reader(group, "one"))
    answer = group.beat(**JOIN)
    assert answer.heartbeat_interval_ms == 500


def test_member_that_does_not_revoke_in_time_is_fenced(group: Group, cluster: Cluster) -> None:
    one, two = reader(group, "one"), reader(group, "two")
    settle(one)
    two.beat()
    one.beat()
    group.now_ms += 9_999
    one.beat()
    two.beat()
    group.on(Tick())
    assert len(two.told) == 0
    group.now_ms += 1
    assert group.machine.deadline_ms is not None
    assert group.machine.deadline_ms <= group.now_ms
    group.on(Tick())
    two.beat()
    assert two.told == cluster.places("t")
    assert one.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_removed(group: Group, cluster: Cluster) -> None:
    one, two = reader(group, "one"), reader(group, "two")
    settle(one, two)
    group.now_ms += 40_000
    two.beat()
    group.now_ms += 5_000
    group.on(Tick())
    assert group.machine.state_name == "Assigning"
    settle(two)
    assert two.owned == cluster.places("t")


def test_previous_epoch_is_accepted_after_a_lost_answer(group: Group) -> None:
    one, two = reader(group, "one"), reader(group, "two")
    settle(one)
    settle(two, one)
    assert one.epoch == 2
    group.cluster.grow("t", 6)
    assert one.beat(is_lost=True) is ErrorCode.NONE
    assert one.epoch == 2
    assert one.beat() is ErrorCode.NONE
    assert one.epoch == 3


def test_previous_epoch_is_fenced_if_the_member_claims_foreign_partitions(
    group: Group, cluster: Cluster
) -> None:
    one, two = reader(group, "one"), reader(group, "two")
    settle(one)
    settle(two, one)
    cluster.grow("t", 6)
    one.beat(is_lost=True)
    for owned in (as_topics(cluster.places("t")), None):
        answer = group.beat(member_id="one", member_epoch=2, topic_partitions=owned)
        assert answer.error_code is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [1, 3])
def test_any_other_epoch_is_fenced(group: Group, epoch: int) -> None:
    one, two = reader(group, "one"), reader(group, "two")
    settle(one, two)
    settle(one, two, reader(group, "three"))
    assert one.epoch == 3
    answer = group.beat(member_id="one", member_epoch=epoch + (epoch == 3))
    assert answer.error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_rejoining_member_gets_a_new_epoch_and_its_old_one_is_fenced(group: Group) -> None:
    one, two = reader(group, "one"), reader(group, "two")
    settle(one, two)
    settle(one, two)
    group.cluster.grow("t", 6)
    settle(one, two)
    old = one.epoch
    one.forget()
    one.beat()
    assert one.epoch > old
    answer = group.beat(member_id="one", member_epoch=old)
    assert answer.error_code is ErrorCode.FENCED_MEMBER_EPOCH


def test_repeated_join_after_a_lost_answer_changes_nothing(group: Group) -> None:
    assert group.beat(**JOIN).member_epoch == 1
    again = group.beat(**JOIN)
    assert again.member_epoch == 1
    assert again.assignment is not None
    assert group.persists == 1


def test_leaving_member_releases_all_partitions(group: Group, cluster: Cluster) -> None:
    one, two = reader(group, "one"), reader(group, "two")
    settle(one, two)
    answer = one.leave()
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, -1)
    settle(two)
    assert two.owned == cluster.places("t")
    two.leave()
    assert group.machine.state_name == "Empty"
    assert group.machine.deadline_ms is None


def test_created_extended_and_deleted_topics_are_noticed(group: Group, cluster: Cluster) -> None:
    one = reader(group, "one", "t", "new")
    settle(one)
    cluster.create("new", 3)
    cluster.grow("t", 5)
    settle(one)
    assert one.owned == cluster.places("t", "new")
    cluster.delete("t")
    settle(one)
    assert one.owned == cluster.places("new")
    assert group.machine.state_name == "Stable"


def test_topic_without_subscribers_changes_nothing(group: Group, cluster: Cluster) -> None:
    one = reader(group, "one")
    settle(one)
    persists = group.persists
    cluster.create("other", 3)
    one.beat()
    assert group.persists == persists


def test_regular_expression_matches_topics_created_later(group: Group, cluster: Cluster) -> None:
    one = Reader(group, "one", subscribed_topic_names=[], subscribed_topic_regex="team-.*|u")
    settle(one)
    assert one.owned == cluster.places("u")
    cluster.create("team-a", 2)
    settle(one)
    assert one.owned == cluster.places("u", "team-a")
    assert group.machine.subscribes("team-a")
    assert not group.machine.subscribes("t")


def test_regular_expression_matches_only_topics_that_the_member_may_describe(
    group: Group, cluster: Cluster
) -> None:
    cluster.hide(one="u")
    one, two = (
        Reader(group, name, subscribed_topic_names=[], subscribed_topic_regex="u|team-.*")
        for name in ("one", "two")
    )
    settle(one, two)
    cluster.create("team-a", 2)
    settle(one, two)
    assert not one.owned & cluster.places("u")
    assert one.owned | two.owned == cluster.places("u", "team-a")
    assert two.owned >= cluster.places("u")


def test_changed_rules_change_the_matches_of_a_regular_expression(
    group: Group, cluster: Cluster
) -> None:
    wants = {"subscribed_topic_names": [], "subscribed_topic_regex": "[tu]"}
    one, two = Reader(group, "one", **wants), Reader(group, "two", **wants)
    settle(one, two)
    cluster.hide(one="t", two="u")
    settle(one, two)
    swapped = one.owned, two.owned
    cluster.hide(one="u", two="t")
    settle(one, two)
    assert swapped == (cluster.places("u"), cluster.places("t"))
    assert (one.owned, two.owned) == (cluster.places("t"), cluster.places("u"))


def test_member_of_a_new_coordinator_gets_only_topics_that_it_may_describe(
    group: Group, cluster: Cluster
) -> None:
    wants = {"subscribed_topic_names": [], "subscribed_topic_regex": "[tu]"}
    cluster.hide(one="u")
    one, two = Reader(group, "one", **wants), Reader(group, "two", **wants)
    settle(one, two)
    group.fail_over()
    two.step()
    two.leave()
    settle(one)
    assert one.owned == cluster.places("t")


def test_failover_without_changes_keeps_the_epoch(group: Group, cluster: Cluster) -> None:
    wants = {"subscribed_topic_names": [], "subscribed_topic_regex": "[tu]"}
    cluster.hide(nobody="u")
    one, two = Reader(group, "one", **wants), Reader(group, "two", **wants)
    settle(one, two)
    epoch = group.machine.epoch
    group.fail_over()
    settle(one, two)
    assert group.machine.epoch == epoch


def test_changed_subscription_is_applied(group: Group, cluster: Cluster) -> None:
    one = reader(group, "one")
    settle(one)
    one.wants, one.is_full = {"subscribed_topic_names": ["u"]}, True
    settle(one)
    assert one.owned == cluster.places("u")


def test_assignor_with_most_votes_is_used(group: Group) -> None:
    readers = [reader(group, name, server_assignor="range") for name in ("a", "b")]
    settle(*readers, reader(group, "c"))
    assert group.machine.description().assignor == "range"
    assert sorted(at for _, at in readers[0].owned) == [0, 1]


class TestStatic:
    def test_assignment_of_an_absent_static_member_is_reserved(self, group: Group) -> None:
        one, two = reader(group, "one", instance_id="i"), reader(group, "two")
        settle(one, two)
        had, epoch = one.owned, one.epoch
        assert one.leave(-2).member_epoch == -2
        settle(two)
        assert len(two.owned) == 2
        one.member_id = "uno"
        settle(one)
        assert (one.owned, one.epoch) == (had, epoch)
        fenced = group.beat(member_id="one", member_epoch=epoch, instance_id="i")
        assert fenced.error_code is ErrorCode.FENCED_INSTANCE_ID

    def test_assignment_of_an_absent_member_is_released_after_its_session(
        self, group: Group, cluster: Cluster
    ) -> None:
        one, two = reader(group, "one", instance_id="i"), reader(group, "two")
        settle(one, two)
        one.leave(-2)
        group.now_ms += 44_999
        two.beat()
        group.now_ms += 1
        group.on(Tick())
        settle(two)
        assert two.owned == cluster.places("t")

    def test_present_member_cannot_be_replaced(self, group: Group) -> None:
        settle(reader(group, "one", instance_id="i"))
        other = reader(group, "two", instance_id="i")
        assert other.beat() is ErrorCode.UNRELEASED_INSTANCE_ID
        assert group.beat(member_id="two", member_epoch=1).error_code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_absent_member_cannot_commit(self, group: Group) -> None:
        one = reader(group, "one", instance_id="i")
        settle(one)
        one.leave(-2)
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
    one, two = reader(group, "one"), reader(group, "two", instance_id="i")
    settle(one, two)
    before, owned, persists = group.machine.description(), one.owned, group.persists
    group.now_ms += 44_000
    group.fail_over()
    group.now_ms += 44_000
    group.on(Tick())
    assert one.beat() is two.beat() is ErrorCode.NONE
    assert group.machine.description() == before
    assert (one.told, group.persists) == (owned, persists)


def test_successor_notices_changed_topics(group: Group, cluster: Cluster) -> None:
    one = reader(group, "one")
    settle(one)
    group.fail_over()
    cluster.grow("t", 9)
    settle(one)
    assert one.owned == cluster.places("t")


def test_successor_waits_for_pending_revocations(group: Group) -> None:
    one, two = reader(group, "one"), reader(group, "two")
    settle(one)
    two.beat()
    one.beat()
    group.fail_over()
    two.beat()
    assert two.told == frozenset()
    group.now_ms += 10_000
    group.on(Tick())
    two.beat()
    assert len(two.told) == 4


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
    for one in readers:
        one.beat()
        one.reconcile()
    for _ in range(3):
        for one in readers:
            one.beat()
            one.reconcile()
    assert [len(one.owned) for one in readers] == [10] * 100
