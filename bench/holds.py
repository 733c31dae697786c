"""How long large work holds the broker's loop: a fetch session of 10 000 partitions, 20 000 groups.

    python bench/holds.py                     all of it, about a minute
    python bench/holds.py --only session      a part of it

The broker runs in this process, in a thread of its own; the interpreter is tuned as in a server
process. All figures are CPU time of that thread, so the load of the machine counts little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scale import Client, make_topic, produce_to

from rookery.broker.groups.removal import OffsetRetention
from rookery.broker.settings import BrokerSettings
from rookery.clock import SystemClock
from rookery.errors import ErrorCode
from rookery.records import heap
from rookery.service.interpreter import tune_interpreter
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.produce import PRODUCE

PARTITIONS, WAKES = 10_000, 300
GROUPS, IN_FLIGHT = 20_000, 100
DAY_MS = 86_400_000


class LoopWatch:
    """Measures the CPU time of the turns of a broker's loop."""

    def __init__(self, served: ServedBroker) -> None:
        """Watch the loop; `total` and `longest` are in milliseconds."""
        self._served = served
        self._task: asyncio.Task[None] | None = None
        self.total = self.longest = 0.0

    def __enter__(self) -> LoopWatch:
        self._served.do(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._served.do(self._stop())

    async def _start(self) -> None:
        self._began = time.thread_time()
        self._task = asyncio.create_task(self._turns())

    async def _stop(self) -> None:
        self.total = (time.thread_time() - self._began) * 1000
        if self._task is not None:
            self._task.cancel()

    async def _turns(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, (time.thread_time() - before) * 1000)


@contextmanager
def serve() -> Iterator[tuple[ServedBroker, Client]]:
    """Run a broker in a folder of its own, with a client."""
    with (
        tempfile.TemporaryDirectory(prefix="rookery-holds-") as folder,
        ServedBroker(Path(folder), BrokerSettings(durability="os")) as served,
    ):
        yield served, Client(served)


def show(what: str, value: float, unit: str, goal: str = "") -> None:
    """Print one figure."""
    print(f"{what:<62} {value:>12,.2f} {unit:<10} {goal}", flush=True)


def session() -> None:
    """Compare the wake-ups of a large fetch session with those of a small one."""
    costs = {}
    for count in (1, PARTITIONS):
        with serve() as (served, writer):
            make_topic(served, "wide", count)
            costs[count] = _cost_of_wake(served, writer, count)
        show(f"a record arrives at a session of {count:,} partitions", costs[count], "ms")
    show("the large session costs more", costs[PARTITIONS] - costs[1], "ms", "< 1")


def _cost_of_wake(served: ServedBroker, writer: Client, count: int) -> float:
    reader = Client(served)
    parts = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(count)
    ]
    opened = reader.ask(FETCH, 12, _fetch(0, 0, [FetchTopic(topic="wide", partitions=parts)]))
    offsets: dict[int, int] = {}
    before = _thread_ms(served)
    for wake in range(WAKES):
        index = wake * 7 % count
        moved = [
            FetchPartition(partition=last, fetch_offset=offsets[last], partition_max_bytes=1 << 20)
            for last in ((wake - 1) * 7 % count,)
            if last in offsets
        ]
        topics = [FetchTopic(topic="wide", partitions=moved)] if moved else []
        reader.send(FETCH, 12, _fetch(opened.session_id, wake + 1, topics))
        writer.ask(PRODUCE, 9, produce_to("wide", [index]))
        response = reader.receive(FETCH, 12)
        if response.error_code or not response.responses:
            raise RuntimeError(f"the session did not deliver record {wake}: {response}")
        offsets[index] = offsets.get(index, 0) + 1
    return (_thread_ms(served) - before) / WAKES


def _fetch(session_id: int, epoch: int, topics: list[FetchTopic]) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=60_000 if epoch else 0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
    )


def _thread_ms(served: ServedBroker) -> float:
    async def read() -> float:
        return time.thread_time() * 1000

    return served.do(read())


def groups() -> None:
    """Measure the longest turn of the loop while many groups are listed and expire."""
    with serve() as (served, client):
        make_topic(served, "t", 1)
        for start in range(0, GROUPS, IN_FLIGHT):
            for number in range(start, start + IN_FLIGHT):
                client.send(OFFSET_COMMIT, 8, _commit(f"group-{number}"))
            for _ in range(IN_FLIGHT):
                _check(client)
        with LoopWatch(served) as watch:
            listed = client.ask(LIST_GROUPS, 5, ListGroupsRequest())
        if len(listed.groups) != GROUPS:
            raise RuntimeError(f"{len(listed.groups)} groups were listed, not {GROUPS}")
        show("20 000 groups are listed: longest turn of the loop", watch.longest, "ms", "≤ 20")
        show("20 000 groups are listed: all turns", watch.total, "ms")
        for what, retention_ms in (("20 000 groups, none expires", DAY_MS), ("all expire", 1)):
            with LoopWatch(served) as watch:
                _expire(served, retention_ms)
            show(f"{what}: longest turn of the loop", watch.longest, "ms", "≤ 20")
            show(f"{what}: all turns", watch.total, "ms")
        left = client.ask(LIST_GROUPS, 5, ListGroupsRequest()).groups
        if left:
            raise RuntimeError(f"{len(left)} groups did not expire")


def _commit(group_id: str) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topics = [OffsetCommitRequestTopic(name="t", partitions=[part])]
    return OffsetCommitRequest(group_id=group_id, topics=topics)


def _check(client: Client) -> None:
    response = client.receive(OFFSET_COMMIT, 8)
    code = response.topics[0].partitions[0].error_code
    if code is not ErrorCode.NONE:
        raise RuntimeError(f"an offset was refused: {code.name}")


def _expire(served: ServedBroker, retention_ms: int) -> None:
    broker = served.broker
    expiry = OffsetRetention(
        broker.groups, broker.replica, SystemClock(), retention_ms, lambda: True
    )

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(expiry.run())

    task = served.do(begin())
    while not task.done():
        time.sleep(0.05)
    task.result()


PARTS: dict[str, Callable[[], None]] = {"session": session, "groups": groups}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    names = parser.parse_args().only.split(",")
    heap.keep()
    tune_interpreter()
    for name in names:
        if name not in PARTS:
            sys.exit(f"there is no part {name!r}; there are {', '.join(PARTS)}")
        PARTS[name]()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
