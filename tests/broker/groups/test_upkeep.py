"""Expiry of offsets and lists of groups: what is decoded, how often, and in which steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from rookery.broker.broker import Broker
from rookery.broker.groups.removal import OffsetRetention
from rookery.broker.settings import BrokerSettings
from rookery.cluster.events.groupevents import OffsetCommitted, OffsetsCommitted
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.state.groups import Group
from rookery.testing.clock import ManualClock
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from tests.broker.groups.upkeep import (
    SESSION_MS,
    CountingKinds,
    Site,
    classic_body,
    consumer_body,
    site,
)

DAY_MS = 86_400_000
TOPIC = bytes(range(16))
GROUPS = 200
# With a decode of one millisecond each, and a turn after five.
LONGEST_RUN = 6


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory:{request.node.nodeid}"


async def commit(broker: Site, group_id: str) -> None:
    """Commit an offset for a group that the broker coordinates."""
    if TOPIC not in broker.replica.state.topics.by_id:
        await broker.replica.propose(
            [TopicCreated(topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[])]
        )
    group = broker.replica.state.groups.by_id[group_id]
    offset = OffsetCommitted(topic_id=TOPIC, partition=0, offset=1, leader_epoch=-1, metadata="")
    await broker.replica.propose(
        [OffsetsCommitted(group_id=group_id, epoch=group.epoch, offsets=[offset])]
    )


def retention(broker: Site) -> OffsetRetention:
    return OffsetRetention(broker.coordinator, broker.replica, broker.clock, DAY_MS, lambda: True)


async def test_expiry_run_yields_by_time_and_decodes_each_group_once(url: str) -> None:
    async with site(url, decode_ms=1) as broker:
        for number in range(GROUPS):
            await broker.store(f"g{number}", "classic", classic_body(f"g{number}", 0))
            await commit(broker, f"g{number}")
        expiry = retention(broker)
        turns = asyncio.create_task(broker.kinds.count_turns())

        await expiry.run()

        assert len(broker.kinds.loaded) == GROUPS
        assert broker.kinds.longest_run <= LONGEST_RUN
        # Until a group changes, it is not decoded again.
        await expiry.run()
        assert len(broker.kinds.loaded) == GROUPS
        turns.cancel()


async def test_undecodable_group_does_not_block_the_expiry_of_others(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(url) as broker:
        await broker.store("broken", "classic", b"\xff\xff")
        await broker.store("newer", "unheard-of", b"")
        await broker.store("g", "classic", classic_body("g", 0))
        for group_id in ("broken", "newer", "g"):
            await commit(broker, group_id)
        broker.clock.advance(2 * DAY_MS)

        await retention(broker).run()
        await retention(broker).run()

        assert list(broker.replica.state.groups.by_id) == ["broken", "newer"]
        assert caplog.text.count("a group is excluded from maintenance") == 2


@pytest.mark.parametrize(
    ("kind", "body"), [("classic", classic_body("g", 1)), ("consumer", consumer_body("g"))]
)
async def test_offsets_of_members_that_died_with_their_broker_expire(
    url: str, kind: str, body: bytes
) -> None:
    async with site(url) as before:
        await before.store("g", kind, body)
        await commit(before, "g")
    async with site(url) as after:
        groups = after.replica.state.groups.by_id
        assert groups["g"].offsets
        await after.claims.run()
        await after.pass_time(SESSION_MS + 1_000, lambda: after.state_of("g") == "Empty")

        after.clock.advance(2 * DAY_MS)
        await retention(after).run()

        assert "g" not in groups


async def test_offsets_committed_again_during_an_expiry_run_are_kept(url: str) -> None:
    async with site(url) as broker:
        await broker.store("g", "classic", classic_body("g", 0))
        await commit(broker, "g")
        broker.clock.advance(2 * DAY_MS)
        broker.log.hold()
        run = asyncio.create_task(retention(broker).run())
        # The run has looked at the group, and waits for its claim.
        while "g" not in broker.coordinator:  # noqa: ASYNC110 (nothing tells when)
            await asyncio.sleep(0)
        again = asyncio.create_task(commit(broker, "g"))
        await asyncio.sleep(0)
        broker.log.let_through()
        await asyncio.gather(run, again)

        assert broker.replica.state.groups.by_id["g"].offset(TOPIC, 0) is not None


async def test_summaries_of_removed_groups_are_dropped(url: str) -> None:
    async with site(url) as broker:
        await broker.store("g", "classic", classic_body("g", 0))
        group = broker.replica.state.groups.by_id["g"]
        summaries = broker.coordinator._summaries
        for number in range(3_000):
            group.id = f"g{number}"
            group.body = classic_body(group.id, 0)
            broker.coordinator.summary(group)

        assert len(summaries._by_id) < 1_100


def test_group_listing_yields_by_time_and_decodes_each_group_once(tmp_path: Path) -> None:
    clock = ManualClock()
    kinds = CountingKinds(clock, decode_ms=1)

    async def prepare(broker: Broker) -> asyncio.Task[None]:
        broker.groups.subject.kinds = kinds
        broker.services.clock = clock
        for number in range(GROUPS):
            group = Group(f"g{number}")
            group.kind, group.body = "classic", classic_body(group.id, number % 2)
            broker.replica.state.groups.by_id[group.id] = group
        broker.replica.state.groups.by_id["broken"] = broken = Group("broken")
        broken.kind, broken.body = "classic", b"\xff\xff"
        return asyncio.create_task(kinds.count_turns())

    async def end(turns: asyncio.Task[None]) -> None:
        turns.cancel()

    # Without periodic tasks: they would claim the groups meanwhile.
    with ServedBroker(tmp_path, BrokerSettings(durability="os", read_only=True)) as served:
        turns = served.do(prepare(served.broker))
        answers = [ask(served.bootstrap, LIST_GROUPS, 5, ListGroupsRequest()) for _ in range(2)]
        served.do(end(turns))

    for answer in answers:
        states = Counter(listed.group_state for listed in answer.groups)
        assert states == {"Empty": GROUPS // 2, "Stable": GROUPS // 2, "Unknown": 1}
    assert len(kinds.loaded) == GROUPS + 1
    assert kinds.longest_run <= LONGEST_RUN
