"""Steps of a consumer group's members are kept as changes, and add up to the whole group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rookery.broker.coordination.machine import MachineRequest, Persist
from rookery.broker.coordination.seats import HeldRequest
from rookery.broker.groups.classic.machine import ClassicGroupMachine
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.settings import ConsumerSettings
from rookery.cluster.events.groupevents import GroupChanged, GroupClaimed, GroupPersisted
from rookery.cluster.state.groups import GROUP_CHANGES_LEVEL, Group
from rookery.cluster.state.images.image import read_image, write_image
from rookery.errors import Corrupt, ErrorCode
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from tests.broker.groups.beats import Cluster, Reader, settle
from tests.broker.groups.beats import Group as BeatenGroup
from tests.broker.groups.upkeep import Site, consumer_body, site

MEMBERS = 500
PARTITIONS = 10 * MEMBERS
MOST_BYTES = 200_000


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory:{request.node.nodeid}"


class SizedGroup(BeatenGroup):
    """Counts what goes into the log."""

    size = 0

    def on(self, event: Any) -> Any:
        effects = self.machine.on(event, self.now_ms)
        persists = [effect for effect in effects if isinstance(effect, Persist)]
        self.size += sum(len(persist.change or persist.body) for persist in persists)
        self.persists += len(persists)
        return [effect for effect in effects if not isinstance(effect, Persist)]


def test_joining_member_persists_only_the_changes() -> None:
    cluster = Cluster()
    group = SizedGroup(cluster)
    readers = [Reader(group, f"m-{at}", subscribed_topic_names=["t"]) for at in range(MEMBERS)]
    for reader in readers:
        reader.step()
    # Only now: otherwise each member that joins moves partitions of the others.
    cluster.create("t", PARTITIONS)
    settle(*readers)
    whole, group.size = len(group.machine.group.body()), 0
    newcomer = Reader(group, "one-more", subscribed_topic_names=["t"])

    settle(*readers, newcomer)

    assert len(newcomer.owned) == PARTITIONS // (MEMBERS + 1)
    assert 0 < group.size < MOST_BYTES
    assert group.size < whole


async def beat(broker: Site, member_id: str, epoch: int, **fields: Any) -> Any:
    message = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )
    held = HeldRequest(CONSUMER_GROUP_HEARTBEAT, message)
    request = MachineRequest(held, message, 1, "client", "/host", "", Cluster(t=4))
    answer = broker.coordinator.ask("g", request, lambda _: lambda: None, creates=epoch == 0)
    return answer if not hasattr(answer, "__await__") else await answer


async def join(broker: Site, member_id: str) -> Any:
    return await beat(
        broker,
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def group_of(broker: Site) -> Group:
    return broker.replica.state.groups.by_id["g"]


def described(broker: Site) -> Any:
    machine = broker.coordinator.machine(group_of(broker))
    assert isinstance(machine, ConsumerGroupMachine)
    description = machine.description()
    return description.epoch, [(member.member, member.target) for member in description.members]


async def test_successor_applies_the_persisted_changes(url: str) -> None:
    async with site(url) as before:
        for name in ("a", "b", "c"):
            assert (await join(before, name)).error_code is ErrorCode.NONE
        # The first member is kept with the whole group, the others as changes.
        assert len(group_of(before).changes) == 2
        await beat(before, "a", -1)
        kept = described(before)
        assert [member.member_id for member, _ in kept[1]] == ["b", "c"]
        again = read_image(write_image(before.replica.state))
        assert again.groups.by_id["g"].changes == group_of(before).changes
    async with site(url) as after:
        assert described(after) == kept
        assert (await join(after, "d")).error_code is ErrorCode.NONE


async def test_changes_larger_than_the_group_are_replaced_by_a_full_body(url: str) -> None:
    async with site(url) as broker:
        await join(broker, "a")
        body, most = group_of(broker).body, 0
        # Bounded: each round adds two changes of at least twenty bytes.
        for _ in range(300):
            await beat(broker, "a", -1)
            await join(broker, "a")
            most = max(most, len(group_of(broker).changes))
        assert most > 10
        assert len(group_of(broker).changes) <= most < 600
        assert group_of(broker).body is not body


async def test_protocol_change_within_a_batch_persists_a_new_body(
    url: str,
) -> None:
    async with site(url, level=GROUP_CHANGES_LEVEL - 1) as broker:
        await join(broker, "a")
        # The last member leaves, which is kept; a classic one asks for an id, which is not.
        leaving = asyncio.create_task(beat(broker, "a", -1))
        asking = asyncio.create_task(ask_for_id(broker))
        await asyncio.gather(leaving, asking)

        assert group_of(broker).kind == "consumer"
        assert isinstance(broker.coordinator.machine(group_of(broker)), ClassicGroupMachine)
        broker.coordinator.drop_all()
        assert isinstance(broker.coordinator.machine(group_of(broker)), ConsumerGroupMachine)


async def ask_for_id(broker: Site) -> Any:
    message = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    request = MachineRequest(HeldRequest(JOIN_GROUP, message), message, 5, "client", "/host", "new")
    answer = broker.coordinator.ask("g", request, lambda _: lambda: None, creates=True)
    return answer if not hasattr(answer, "__await__") else await answer


async def test_changes_are_not_written_while_older_brokers_are_present(url: str) -> None:
    async with site(url, level=GROUP_CHANGES_LEVEL - 1) as broker:
        await join(broker, "a")
        await join(broker, "b")

        assert group_of(broker).changes == []
        assert len(described(broker)[1]) == 2


async def test_change_is_valid_only_after_a_body_and_at_the_expected_version(url: str) -> None:
    async with site(url) as broker:
        [claim] = await broker.replica.propose([GroupClaimed(group_id="g")])

        async def change(epoch: int, version: int) -> ErrorCode:
            event = GroupChanged(group_id="g", epoch=epoch, version=version, change=b"x")
            [outcome] = await broker.replica.propose([event])
            return outcome.error

        assert await change(claim.value, 0) is ErrorCode.NOT_COORDINATOR
        body = consumer_body("g")
        event = GroupPersisted(group_id="g", epoch=1, version=0, kind="consumer", body=body)
        await broker.replica.propose([event])
        assert await change(claim.value, 0) is ErrorCode.NOT_COORDINATOR
        assert await change(claim.value + 1, 1) is ErrorCode.NOT_COORDINATOR
        assert await change(claim.value, 1) is ErrorCode.NONE
        assert (group_of(broker).version, group_of(broker).changes) == (2, [b"x"])


@pytest.mark.parametrize("change", [b"", b"\x00\x09", b"\x00\x01\xff"])
def test_malformed_change_is_refused(change: bytes) -> None:
    with pytest.raises(Corrupt, match="a change of a consumer group cannot be read"):
        ConsumerGroupMachine.load("g", consumer_body("g"), ConsumerSettings(), 0, changes=[change])
