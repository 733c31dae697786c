"""Consumer groups that become classic groups, and migrating groups that change coordinators."""

from __future__ import annotations

from rookery.broker.groups.classic.machine import ClassicGroupMachine
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import ErrorCode
from tests.broker.groups.beats import Cluster
from tests.broker.groups.migrating import (
    NONE,
    REBALANCE_IN_PROGRESS,
    both,
    consumer,
    settle,
    shares,
    six,
    waiting,
)
from tests.broker.groups.mixing import (
    REBALANCE_MS,
    ClassicReader,
    Mixed,
)

# -- downwards -------------------------------------------------------------------------------------


@both
def test_last_consumer_member_to_leave_turns_the_group_classic_and_rebalances(
    assignor: str,
) -> None:
    group = six()
    new = consumer(group, "new")
    old = [ClassicReader(group, "t", assignor=assignor) for _ in range(2)]
    settle(new, *old)
    generation = old[0].generation
    assert group.consumer.epoch == generation

    new.leave()

    assert group.kind == "classic"
    assert group.machine.state_name == "PreparingRebalance"
    assert isinstance(group.machine, ClassicGroupMachine)
    assert group.machine.epoch == generation
    assert [member.heartbeat() for member in old] == [REBALANCE_IN_PROGRESS] * 2
    assert group.machine.check_commit(old[0].member_id, generation, None) is NONE
    settle(*old)
    assert shares(group, *old) == [3, 3]
    assert group.machine.epoch > generation


def test_expired_last_consumer_member_turns_the_group_classic() -> None:
    group = six(session_timeout_ms=5_000)
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new, old)

    group.pass_time(5_000)

    assert group.kind == "classic"
    settle(old)
    assert shares(group, old) == [6]


def test_last_member_of_all_leaves_an_empty_consumer_group() -> None:
    group = six()
    new = consumer(group, "new")
    settle(new)
    new.leave()

    assert (group.kind, group.machine.state_name) == ("consumer", "Empty")


def test_group_too_large_for_the_classic_protocol_stays_a_consumer_group() -> None:
    settings = ClassicSettings(initial_rebalance_delay_ms=0, max_size=1)
    group = Mixed(Cluster(t=6), ConsumerSettings(), settings)
    new = consumer(group, "new")
    old = [ClassicReader(group, "t") for _ in range(2)]
    settle(new, *old)
    new.leave()
    settle(*old)
    assert (group.kind, shares(group, *old)) == ("consumer", [3, 3])

    old[0].leave()
    settle(old[1])
    assert (group.kind, shares(group, old[1])) == ("classic", [6])


def test_classic_member_in_an_old_epoch_must_rejoin_after_a_downgrade() -> None:
    group = six()
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new, old)
    consumer(group, "third").beat()  # a new epoch, which the classic one does not know yet
    group.beat(member_id="third", member_epoch=-1)
    new.leave()

    assert group.kind == "classic"
    assert old.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    settle(old)
    assert shares(group, old) == [6]


# -- failover --------------------------------------------------------------------------------------


@both
def test_a_mixed_group_survives_its_coordinator(assignor: str) -> None:
    group = six()
    new = consumer(group, "new")
    old = [ClassicReader(group, "t", assignor=assignor) for _ in range(2)]
    settle(new, *old)
    before = group.consumer.description()

    group.fail_over()

    assert group.consumer.description() == before
    assert [member.heartbeat() for member in old] == [NONE] * 2
    assert new.beat() is NONE
    settle(new, *old)
    assert shares(group, new, *old) == [2, 2, 2]


def test_downgrade_continues_with_the_next_coordinator() -> None:
    group = six()
    new = consumer(group, "new")
    old = [ClassicReader(group, "t") for _ in range(2)]
    settle(new, *old)
    new.leave()

    group.fail_over()

    assert group.machine.state_name == "PreparingRebalance"
    assert [member.heartbeat() for member in old] == [REBALANCE_IN_PROGRESS] * 2
    settle(*old)
    assert shares(group, *old) == [3, 3]


def test_downgrade_does_not_wait_forever_for_a_member_after_failover() -> None:
    group = six()
    new = consumer(group, "new")
    old = [ClassicReader(group, "t") for _ in range(2)]
    settle(new, *old)
    new.leave()
    group.fail_over()
    old[0].step()
    assert waiting(old[0]) == [True]
    for _ in range(10):
        group.pass_time(REBALANCE_MS // 10)
        old[1].heartbeat()  # it lives, but does not join
    assert waiting(old[0]) == [False]
    settle(old[0])
    assert shares(group, old[0]) == [6]


def test_group_without_classic_members_is_persisted_in_the_older_format() -> None:
    group = six()
    new, old = consumer(group, "new"), ClassicReader(group, "t")
    settle(new)
    assert group.kept[1][:2] == b"\0\0"
    settle(old, new)
    assert group.kept[1][:2] == b"\0\1"
