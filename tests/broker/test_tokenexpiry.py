"""The removal of expired delegation tokens, by a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rookery.broker.tokens.tokenexpiry import TokenExpiry
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.tokenevents import DelegationTokenCreated, DelegationTokenRenewed
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.testing.clock import ManualClock

OWNER = "User:o"
LIFE_MS, MAX_MS = 1_000, 5_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def replica(clock: ManualClock) -> AsyncIterator[Replica]:
    replica = Replica(open_log("memory:token-expiry"), clock)
    await replica.open()
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=FEATURE_LEVEL))
    await replica.register(BrokerRegistered(process_id=bytes(16), node_id=1, host="h", port=1))
    yield replica
    await replica.close()


async def create(replica: Replica, clock: ManualClock, token_id: str) -> None:
    now_ms = clock.now_ms()
    event = DelegationTokenCreated(
        token_id=token_id,
        owner=OWNER,
        requester=OWNER,
        renewers=[],
        issued_ms=now_ms,
        expires_ms=now_ms + LIFE_MS,
        max_ms=now_ms + MAX_MS,
    )
    await replica.propose([event])


async def test_only_expired_tokens_are_removed(replica: Replica, clock: ManualClock) -> None:
    expiry = TokenExpiry(replica, clock, lambda: True)
    await create(replica, clock, "renewed")
    await create(replica, clock, "expired")
    clock.advance(LIFE_MS)
    assert await expiry.run() == 0
    now_ms = clock.now_ms()
    renewal = DelegationTokenRenewed(
        token_id="renewed",  # noqa: S106 (an id)
        principal=OWNER,
        now_ms=now_ms,
        expires_ms=now_ms + LIFE_MS,
    )
    await replica.propose([renewal])
    clock.advance(1)

    assert await expiry.run() == 1
    assert list(replica.state.security.tokens) == ["renewed"]
    clock.advance(LIFE_MS)
    assert await expiry.run() == 1
    assert replica.state.security.tokens == {}


async def test_broker_that_is_not_chosen_removes_nothing(
    replica: Replica, clock: ManualClock
) -> None:
    await create(replica, clock, "expired")
    clock.advance(2 * MAX_MS)

    assert await TokenExpiry(replica, clock, lambda: False).run() == 0
    assert list(replica.state.security.tokens) == ["expired"]
