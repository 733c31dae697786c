"""Readers during maintenance that moves each record several times: all of them see the same."""

from __future__ import annotations

import asyncio
import operator
import os
import random
from collections import Counter
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.records.recordcodec import Record
from rookery.testing.broker import BrokerProcess
from rookery.testing.wait import PATIENCE_SECONDS, wait_until_async
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.faults.eagerupkeep import EAGER, UpkeepWatch
from tests.faults.flaky import Clients
from tests.faults.ledger import Ledger
from tests.faults.probe import metrics
from tests.faults.rewritingclients import (
    EVENTS,
    KEYED,
    PARTITIONS,
    CommittedReader,
    KeyReader,
    PlainWriter,
    RandomReader,
    RecordDeleter,
    TransactionalWriter,
    events,
    keyed,
)

SEED = int(os.environ.get("ROOKERY_TEST_SEED", str(random.randrange(1 << 32))))
ENOUGH = {
    "merges": 40,
    "segments": 40,
    "compactions": 40,
    "condemned objects": 40,
    "deleted objects": 40,
    "trimmed entries": 1_000,
    "reads": 2_000,
    "passes over all keys": 50,
    "transactions": 100,
}
"""The run continues until there was as much."""
DELETIONS = 15
MOST_SECONDS = 240.0
QUIET_ROUNDS = 5
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "500",
    "delete.retention.ms": "1500",
}
SHORT = {"retention.bytes": "1000000"}


async def create_topic(clients: Clients, name: str, configs: Mapping[str, str]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=PARTITIONS,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    line = await clients.connect()
    answer = await line.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic]))
    line.upstream.close()
    assert answer.topics[0].error_code is ErrorCode.NONE


def total(broker: BrokerProcess, name: str) -> float:
    """Return a metric, summed over all processes of the broker."""
    return sum(metrics(broker, worker)[name] for worker in range(broker.workers))


class RewritingRun:
    """Writers and readers of one broker until there was enough of everything."""

    def __init__(self, broker: BrokerProcess, chance: random.Random, *, deletes: bool) -> None:
        """Prepare.

        Args:
            broker: rewrites its log eagerly.
            chance: decides what the clients do.
            deletes: whether the oldest events are deleted, by retention and by a client.
        """
        self._broker = broker
        self._deletes = deletes
        self._enough = Counter(ENOUGH)
        if deletes:
            self._enough["deletions by a client"] = self._enough["by retention"] = DELETIONS
        self._ledger = ledger = Ledger()
        addresses = [process["address"] for process in broker.ready["brokers"]]
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        self._clients = clients = Clients(lambda: ports, chance)
        self._watch = UpkeepWatch(broker.folder)
        self._keys = KeyReader(clients, ledger)
        self._transactional = [
            TransactionalWriter(
                clients, ledger, events(clients, name), name=name, is_newer=name == "newer"
            )
            for name in ("newer", "older")
        ]
        source = keyed(clients, "in-transactions")
        self._transactional.append(
            TransactionalWriter(clients, ledger, source, name="keyed", is_newer=True)
        )

    async def go(self) -> None:
        """Run, then compare all that is stored with all that was acknowledged."""
        await create_topic(self._clients, EVENTS, SHORT if self._deletes else {})
        await create_topic(self._clients, KEYED, COMPACTED)
        watching = asyncio.create_task(self._watch.follow())
        try:
            await self._work(watching)
            await self._check_events()
            await self._wait_until_quiet()
            await self._check_events()
            await self._check_keys()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            print(dict(self._progress()), dict(self._clients.codes))  # noqa: T201

    async def _work(self, watching: asyncio.Task[None]) -> None:
        """Let clients work until there was enough of everything; none of them fails."""
        tasks = [asyncio.create_task(work) for work in self._works()]

        def progress() -> Counter[str]:
            for task in (*tasks, watching):
                if task.done():
                    raise AssertionError("a client has ended") from task.exception()
            return self._progress()

        await wait_until_async(
            progress, "enough of all", accepts=self._enough.__le__, seconds=MOST_SECONDS
        )
        self._clients.stopping.set()
        # Every request has an answer.
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*tasks)

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        clients, ledger = self._clients, self._ledger
        works = [writer.work() for writer in self._transactional]
        works += [
            PlainWriter(clients, ledger, events(clients, "plain")).work(),
            PlainWriter(clients, ledger, keyed(clients, "plain")).work(),
            RandomReader(clients, ledger, EVENTS, is_deleted=self._deletes).work(),
            RandomReader(clients, ledger, EVENTS, is_deleted=self._deletes).work(),
            RandomReader(clients, ledger, KEYED).work(),
            self._keys.work(),
        ]
        return [*works, RecordDeleter(clients, ledger).work()] if self._deletes else works

    def _progress(self) -> Counter[str]:
        done = Counter(self._watch.counts)
        done["reads"] = self._ledger.reads
        done["passes over all keys"] = self._keys.passes
        done["transactions"] = min(writer.committed for writer in self._transactional)
        done["deletions by a client"] = self._clients.codes["delete NONE"]
        done["by retention"] = done["deleted records"] - done["deletions by a client"]
        return done

    async def _wait_until_quiet(self) -> None:
        """Return when the rounds of maintenance find nothing more to do."""
        known = Counter[str]()
        began = 0.0

        def quiet_rounds() -> float:
            nonlocal known, began
            rounds = total(self._broker, "rookery_caretaker_rounds_total")
            if known != self._watch.counts:
                known, began = Counter(self._watch.counts), rounds
            return rounds - began

        await wait_until_async(
            quiet_rounds, "quiet rounds", accepts=partial(operator.le, QUIET_ROUNDS)
        )

    async def _check_events(self) -> None:
        for partition in range(PARTITIONS):
            first, records = await self._read_all(EVENTS, partition)
            assert first == 0 or self._deletes
            self._ledger.check_complete(EVENTS, partition, first, records)

    async def _check_keys(self) -> None:
        for partition in range(PARTITIONS):
            expected = self._ledger.last_records(KEYED, partition)
            _, records = await self._read_all(KEYED, partition)
            self._ledger.check_last(KEYED, partition, expected, records)

    async def _read_all(self, topic: str, partition: int) -> tuple[int, list[Record]]:
        """Return all records of a partition, and the start of its log."""
        line = await self._clients.connect()
        reader = CommittedReader(self._clients, self._ledger, line)
        while True:  # the beginning can be deleted meanwhile
            bounds = await reader.bounds(topic, partition)
            records = await reader.read_until(topic, partition, bounds)
            if records is not None:
                line.upstream.close()
                return bounds.start, records


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("workers", "deletes"),
    [(1, False), (2, True)],
    ids=["one process keeps all events", "two processes delete old events"],
)
def test_readers_see_the_same_while_everything_is_rewritten(
    tmp_path: Path, workers: int, deletes: bool
) -> None:
    print(f"seed {SEED}")  # noqa: T201 (to run it again)
    with BrokerProcess(tmp_path / "data", workers=workers, flags=EAGER) as broker:
        asyncio.run(RewritingRun(broker, random.Random(SEED), deletes=deletes).go())

        assert total(broker, "rookery_caretaker_quarantined") == 0
        assert broker.stop() == 0
    lines = broker.words().splitlines()
    assert [line for line in lines if "level=error" in line or "Traceback" in line] == []
