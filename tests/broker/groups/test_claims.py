"""Groups whose members died while no broker looked are claimed and emptied."""

from __future__ import annotations

import asyncio

import pytest

from rookery.errors import Unavailable
from tests.broker.groups.upkeep import SESSION_MS, Site, classic_body, consumer_body, site

GROUPS = 300


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory:{request.node.nodeid}"


async def test_members_that_do_not_return_after_a_restart_expire(url: str) -> None:
    async with site(url) as before:
        await before.store("classic", "classic", classic_body("classic", 2))
        await before.store("consumer", "consumer", consumer_body("consumer"))
    async with site(url) as after:
        assert await after.claims.run() == 2
        await after.pass_time(SESSION_MS - 1_000, lambda: True)
        # No member is expired before a full session time-out.
        assert {after.state_of("classic"), after.state_of("consumer")} <= {"Stable", "Reconciling"}

        await after.pass_time(
            2_000, lambda: after.state_of("classic") == after.state_of("consumer") == "Empty"
        )


async def test_a_group_that_moves_to_another_broker_is_claimed_there(url: str) -> None:
    async with site(url, 1) as first:
        names = [f"g{number}" for number in range(20)]
        for name in names:
            await first.store(name, "classic", classic_body(name, 1))
        assert await first.claims.run() == len(names)
        async with site(url, 2) as second:
            await first.replica.barrier()
            moved = [name for name in names if second.coordinator.is_ours(name)]
            assert await second.claims.run() == len(moved) > 0
            assert all(name in second.coordinator for name in moved)
            await first.replica.barrier()
            assert len(first.coordinator) == len(names) - len(moved)


async def test_claims_are_made_in_bounded_batches_and_once(url: str) -> None:
    async with site(url) as before:
        for number in range(GROUPS):
            name = f"g{number}"
            await before.store(name, "classic", classic_body(name, 1 if number % 3 else 0))
    async with site(url, decode_ms=1) as after:
        turns = asyncio.create_task(after.kinds.count_turns())

        claimed = await after.claims.run()

        turns.cancel()
        with_members = GROUPS - GROUPS // 3
        assert claimed == len(after.coordinator) == with_members
        # Each group is decoded for its summary, and those with members for their claim.
        assert len(after.kinds.loaded) == GROUPS + with_members
        assert after.kinds.longest_run <= 50
        assert await after.claims.run() == 0
        assert len(after.kinds.loaded) == GROUPS + with_members


async def test_many_due_groups_are_not_handled_in_one_turn_of_the_loop(url: str) -> None:
    async with site(url) as before:
        for number in range(GROUPS):
            await before.store(f"g{number}", "classic", classic_body(f"g{number}", 1))
    async with site(url) as after:
        await after.claims.run()
        for _ in range(SESSION_MS // 1000 + 1):
            after.clock.advance(1000)
            handled = batches(after)

            after.coordinator.timer.look()

            assert batches(after) - handled <= 25
        assert batches(after) > 0
        await after.pass_time(
            0, lambda: all(after.state_of(f"g{number}") == "Empty" for number in range(GROUPS))
        )


def batches(broker: Site) -> int:
    """Return how many groups have something to propose."""
    return sum(seat.batch is not None for seat in broker.coordinator._seats.values())


async def test_claim_is_retried_while_the_cluster_log_is_unreachable(url: str) -> None:
    async with site(url) as before:
        await before.store("g", "classic", classic_body("g", 1))
    async with site(url) as after:
        after.log.cut()
        with pytest.raises(Unavailable):
            await after.claims.run()
        after.log.mend()

        assert await after.claims.run() == 1


async def test_undecodable_group_is_not_claimed_repeatedly(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(url) as before:
        await before.store("broken", "classic", b"\xff\xff")
        await before.store("g", "classic", classic_body("g", 1))
    async with site(url) as after:
        assert await after.claims.run() == 1
        after.coordinator.drop_all()
        assert await after.claims.run() == 1

        assert "broken" not in after.coordinator
        assert caplog.text.count("a group is excluded from maintenance") == 1
