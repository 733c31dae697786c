"""Ending overdue transactions: which broker does it, and when, by a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from rookery.broker.overdue import Overdue
from rookery.broker.settings import BrokerSettings
from rookery.cluster.events.brokerevents import BrokerLeft, BrokerRegistered, ClusterCreated
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.events.txnevents import (
    PartitionsAddedToTransaction,
    TransactionEnded,
    TransactionInitialised,
    TransactionPlace,
)
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import coordinator_of
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.txns import Transaction, TransactionOwner
from rookery.errors import ErrorCode
from rookery.testing.clock import ManualClock

TOPIC = bytes(range(16))
TIMEOUT_MS, IDLE_MS = 5_000, 1_000_000
_names = count(1)


class Cluster:
    """Brokers on one log and one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.url = f"memory:overdue-{next(_names)}"
        self.brokers: list[tuple[Replica, Overdue]] = []
        self.is_sound = True

    async def join(self) -> tuple[Replica, Overdue]:
        replica = Replica(open_log(self.url), self.clock)
        await replica.open()
        if not replica.state.cluster_id:
            await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
        event = BrokerRegistered(
            process_id=bytes(16), node_id=len(self.brokers) + 1, host="h", port=len(self.brokers)
        )
        await replica.register(event)
        settings = BrokerSettings(transactional_id_expiration_ms=IDLE_MS)
        member = (replica, Overdue(replica, self.clock, settings, lambda: self.is_sound))
        self.brokers.append(member)
        for other, _ in self.brokers:
            await other.barrier()
        return member

    async def close(self) -> None:
        for replica, _ in self.brokers:
            await replica.close()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.close()


async def begin(replica: Replica, name: str = "x") -> TransactionOwner:
    """Open a transaction on one partition."""
    if TOPIC not in replica.state.topics.by_id:
        await replica.propose(
            [TopicCreated(topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[])]
        )
    if name not in replica.state.transactions.by_id:
        event = TransactionInitialised(transactional_id=name, timeout_ms=TIMEOUT_MS)
        await replica.propose([event])
    writer = replica.state.transactions.by_id[name].writer
    place = TransactionPlace(topic_id=TOPIC, partition=0)
    [outcome] = await replica.propose(
        [
            PartitionsAddedToTransaction(
                transactional_id=name,
                producer_id=writer.producer_id,
                producer_epoch=writer.epoch,
                places=[place],
            )
        ]
    )
    assert outcome.error is ErrorCode.NONE
    return writer


async def end(replica: Replica, writer: TransactionOwner, name: str = "x") -> None:
    event = TransactionEnded(
        transactional_id=name,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        is_commit=True,
    )
    await replica.propose([event])


def transaction(replica: Replica, name: str = "x") -> Transaction:
    return replica.state.transactions.by_id[name]


def partition(replica: Replica) -> Partition:
    return replica.state.topics.by_id[TOPIC].partitions[0]


async def test_transaction_is_aborted_exactly_at_its_timeout(cluster: Cluster) -> None:
    replica, overdue = await cluster.join()
    await begin(replica)
    assert await overdue.look() == []
    cluster.clock.advance(TIMEOUT_MS - 1)
    assert await overdue.look() == []
    cluster.clock.advance(1)
    assert await overdue.look() == ["x"]
    assert transaction(replica).state.words == "CompleteAbort"
    assert transaction(replica).writer.epoch == 1
    assert partition(replica).row(0).is_marker
    assert await overdue.look() == []


async def test_next_transaction_has_its_own_timeout(cluster: Cluster) -> None:
    replica, overdue = await cluster.join()
    writer = await begin(replica)
    await overdue.look()
    cluster.clock.advance(TIMEOUT_MS)
    await end(replica, writer)
    await begin(replica)
    assert await overdue.look() == []
    cluster.clock.advance(TIMEOUT_MS)
    assert await overdue.look() == ["x"]


async def test_only_the_coordinator_of_a_transaction_aborts_it(cluster: Cluster) -> None:
    brokers = [await cluster.join() for _ in range(3)]
    names = [f"x{number}" for number in range(9)]
    for name in names:
        await begin(brokers[0][0], name)
    for replica, overdue in brokers:
        await replica.barrier()
        await overdue.look()
    cluster.clock.advance(TIMEOUT_MS)
    nodes = brokers[0][0].state.brokers.nodes
    for node, (_, overdue) in enumerate(brokers, 1):
        assert await overdue.look() == [
            name for name in names if coordinator_of(name, nodes) == node
        ]
    await brokers[0][0].barrier()
    assert not brokers[0][0].state.transactions.open


async def test_new_coordinator_gives_unseen_transactions_their_full_timeout(
    cluster: Cluster,
) -> None:
    brokers = [await cluster.join() for _ in range(2)]
    replica = brokers[0][0]
    name = next(
        name
        for name in (f"x{number}" for number in range(99))
        if coordinator_of(name, replica.state.brokers.nodes) == 2
    )
    await begin(replica, name)
    await brokers[1][0].barrier()
    await brokers[1][1].look()
    cluster.clock.advance(TIMEOUT_MS)
    await brokers[1][0].propose([BrokerLeft()])
    await replica.barrier()
    assert await brokers[0][1].look() == []
    cluster.clock.advance(TIMEOUT_MS)
    assert await brokers[0][1].look() == [name]


async def test_unused_transactional_ids_are_removed(cluster: Cluster) -> None:
    replica, overdue = await cluster.join()
    await begin(replica, "open")
    await end(replica, await begin(replica))
    cluster.clock.advance(IDLE_MS)
    assert await overdue.forget() == 0
    cluster.clock.advance(60_000)
    cluster.is_sound = False
    assert await overdue.forget() == 0
    cluster.is_sound = True
    assert await overdue.forget() == 1
    assert set(replica.state.transactions.by_id) == {"open"}


async def test_ids_too_long_for_one_entry_are_all_handled(
    cluster: Cluster,
) -> None:
    replica, overdue = await cluster.join()
    names = [f"{index:03}-{'x' * 8_000}" for index in range(60)]
    for name in names:
        await begin(replica, name)
    assert await overdue.look() == []
    cluster.clock.advance(TIMEOUT_MS)

    assert sorted(await overdue.look()) == names

    cluster.clock.advance(IDLE_MS + 1)
    assert await overdue.forget() == len(names)
