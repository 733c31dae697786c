"""Calls of the cluster log fail at random: no broker ends or stands still, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest

from rookery.broker.broker import Broker
from rookery.broker.settings import BrokerSettings
from rookery.cluster.replica import Replica
from rookery.errors import ErrorCode
from rookery.testing.wait import PATIENCE_SECONDS, wait_until_async
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.broker.txns import committed
from tests.faults.flaky import (
    PARTITIONS,
    Clients,
    FlakyLog,
    IdempotentProducer,
    TransactionalProducer,
)

SEED = int(os.environ.get("ROOKERY_TEST_SEED", str(random.randrange(1 << 32))))
CUTS, BATCHES, TRANSACTIONS = 5, 100, 10
"""The run continues until there was as much: of outages, and from each producer."""
MOST_SECONDS = 240.0


@asynccontextmanager
async def cluster(name: str, session_ms: int, inline_bytes: int) -> AsyncIterator[list[Broker]]:
    """Three brokers in this process; the first one is the caretaker, too."""
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for node_id in (1, 2, 3):
            settings = BrokerSettings(
                store=f"memory:{name}",
                cluster=f"memory:{name}",
                listen="127.0.0.1:0",
                http_listen="",
                node_id=node_id,
                inline_bytes=inline_bytes,
                session_timeout_ms=session_ms,
                beat_interval_ms=700,
                caretaker="inline" if node_id == 1 else "off",
                upkeep_interval_ms=1_500,
                snapshot_entries=300,
            )
            broker = Broker(settings)
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        yield brokers


async def create_topics(clients: Clients) -> None:
    topics = [
        CreatableTopic(
            name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        for name in ("plain", "txn")
    ]
    line = await clients.connect()
    answer = await line.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics))
    line.upstream.close()
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.NONE}


class Outages:
    """Makes the log unreachable for one broker after the other."""

    def __init__(self, logs: list[FlakyLog], chance: random.Random) -> None:
        self.count = 0
        self._logs = logs
        self._chance = chance

    async def strike(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.3, 2.0))
            log = self._chance.choice(self._logs)
            log.cut()
            await asyncio.sleep(self._chance.uniform(0.2, 8.0))
            log.mend()
            self.count += 1


async def read_all(clients: Clients, topic: str) -> list[list[bytes]]:
    line = await clients.connect()
    records = [await committed(line, topic, partition=number) for number in range(PARTITIONS)]
    line.upstream.close()
    return records


def check_plain(producers: list[IdempotentProducer], found: list[list[bytes]]) -> None:
    """See each acknowledged record once, in order; the last of each may be unacknowledged."""
    for producer in producers:
        own = [value for value in found[producer.partition] if value.startswith(producer.name)]
        sent = [producer.name + b"%d" % number for number in range(len(producer.acked) + 1)]
        assert own in (sent, sent[:-1])


def check_transactions(producers: list[TransactionalProducer], found: list[list[bytes]]) -> None:
    """See transactions once and whole, or not at all."""
    times = Counter(value for values in found for value in values)
    for producer in producers:
        for outcome, values in producer.ended:
            seen = [times[value] for value in values]
            match outcome:
                case "committed":
                    assert seen == [1] * len(values), values
                case "aborted":
                    assert not any(seen), values
                case _:
                    assert seen in ([1] * len(values), [0] * len(values)), values


async def check_states(brokers: list[Broker]) -> None:
    """Check that all brokers are members, and have computed the same state."""
    for replica in (broker.replica for broker in brokers):
        await wait_until_async(partial(is_member, replica))
        await replica.barrier()
    number = max(broker.replica.state.applied for broker in brokers)
    for replica in (broker.replica for broker in brokers):
        await wait_until_async(partial(has_applied, replica, number))
    assert len({broker.replica.digest_at(number) for broker in brokers}) == 1


def is_member(replica: Replica) -> bool:
    return replica.incarnation in replica.state.brokers.sequences


def has_applied(replica: Replica, number: int) -> bool:
    return replica.state.applied >= number


def make_flaky(brokers: list[Broker], chance: random.Random) -> list[FlakyLog]:
    logs = []
    for broker in brokers:
        follower = broker.replica._follower
        follower.log = log = FlakyLog(follower.log)
        log.fail_at_random(chance)
        logs.append(log)
    return logs


async def write_amid_failures(
    brokers: list[Broker],
    clients: Clients,
    plain: list[IdempotentProducer],
    txns: list[TransactionalProducer],
) -> None:
    """Let producers write until there were enough outages; then all is well, and they stop."""
    logs = make_flaky(brokers, clients.chance)
    outages = Outages(logs, clients.chance)
    works = [*(producer.work() for producer in plain), *(producer.work() for producer in txns)]
    tasks = [asyncio.create_task(work) for work in works]
    striking = asyncio.create_task(outages.strike())

    def progress() -> tuple[int, ...]:
        assert [broker for broker in brokers if broker.failed.done()] == []
        assert [task for task in tasks if task.done()] == []
        acked = min(len(producer.acked) for producer in plain)
        return outages.count, acked, min(producer.count("committed") for producer in txns)

    def is_enough(done: tuple[int, ...]) -> bool:
        return all(map(int.__ge__, done, (CUTS, BATCHES, TRANSACTIONS)))

    await wait_until_async(
        progress, "outages, batches, transactions", accepts=is_enough, seconds=MOST_SECONDS
    )
    striking.cancel()
    for log in logs:
        await log.heal()
    clients.stopping.set()
    # Every request has an answer.
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*tasks)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("session_ms", "inline_bytes"),
    [(5_000, 65_536), (60_000, 0)],
    ids=["cut-off brokers expire", "cut-off brokers continue from snapshots"],
)
async def test_random_failures_of_the_log_lose_and_stop_nothing(
    request: pytest.FixtureRequest, session_ms: int, inline_bytes: int
) -> None:
    print(f"seed {SEED}")  # noqa: T201 (to run it again)
    chance = random.Random(SEED)
    async with cluster(request.node.nodeid, session_ms, inline_bytes) as brokers:
        clients = Clients(lambda: [broker.listener.port for broker in brokers], chance)
        plain = [IdempotentProducer(clients, number) for number in range(4)]
        txns = [TransactionalProducer(clients, number) for number in range(4)]
        await create_topics(clients)

        await write_amid_failures(brokers, clients, plain, txns)

        print(clients.codes)  # noqa: T201
        await check_states(brokers)
        check_plain(plain, await read_all(clients, "plain"))
        check_transactions(txns, await read_all(clients, "txn"))
        assert [broker for broker in brokers if broker.failed.done()] == []
