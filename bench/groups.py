"""How a broker bears many groups, and many members of one.

    python bench/groups.py                    both, under a minute
    python bench/groups.py --only heartbeats  one of: heartbeats, join

Heartbeats: 10 000 groups of one member each, a connection for ten of them, a heartbeat of each
every three seconds; the figure is the CPU time of the broker's process. Join: 100 consumers of
librdkafka and a topic of 1 000 partitions, from the first `subscribe` until every one of them has
its ten partitions, by both group protocols.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from scale import cpu, show

from rookery.errors import ErrorCode
from rookery.net.settings import UpstreamSettings
from rookery.net.upstream import Upstream, connect
from rookery.testing.broker import BrokerProcess
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from rookery.wire.messages.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from rookery.wire.messages.sync_group import (
    SYNC_GROUP,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

GROUPS = 10_000
CONNECTIONS = 1_000
INTERVAL_SECONDS = 3.0
ROUNDS = 4
MEMBERS = 100
PARTITIONS = 1_000
SESSION_MS = 45_000
OK = ErrorCode.NONE


# Ten thousand groups.


async def join(line: Upstream, group: str) -> HeartbeatRequest:
    """Be the one member of a group; return its heartbeat."""
    joined = await line.call(
        JOIN_GROUP, 3,
        JoinGroupRequest(
            group_id=group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS,
            member_id="", protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(40))],
        ),
        SESSION_MS,
    )  # fmt: skip
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(40))
    synced = await line.call(
        SYNC_GROUP, 3,
        SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id,
            assignments=[share],
        ),
        SESSION_MS,
    )  # fmt: skip
    if synced.error_code is not OK:
        raise SystemExit(f"{group} could not be joined: {synced.error_code!r}")
    return HeartbeatRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
    )


async def beat(line: Upstream, beats: Sequence[HeartbeatRequest], first: float) -> None:
    """Send each heartbeat every three seconds, one after the other."""
    loop = asyncio.get_running_loop()
    for number in range(ROUNDS):
        for place, heartbeat in enumerate(beats):
            due = first + INTERVAL_SECONDS * (number + place / len(beats))
            await asyncio.sleep(due - loop.time())
            answer = await line.call(HEARTBEAT, 3, heartbeat, SESSION_MS)
            if answer.error_code is not OK:
                raise SystemExit(f"{heartbeat.group_id}: {answer.error_code!r}")


async def heartbeats(broker: BrokerProcess) -> None:
    """Join all groups, then measure their heartbeats."""
    lines = [
        await connect("127.0.0.1", broker.port, UpstreamSettings()) for _ in range(CONNECTIONS)
    ]
    began, before = time.perf_counter(), cpu(broker.pid)

    async def join_some(index: int) -> list[HeartbeatRequest]:
        numbers = range(index, GROUPS, CONNECTIONS)
        return [await join(lines[index], f"group-{number}") for number in numbers]

    members = await asyncio.gather(*map(join_some, range(CONNECTIONS)))
    show(f"{GROUPS:,} groups joined in", time.perf_counter() - began, "s")
    show("CPU of the broker for that", cpu(broker.pid) - before, "s")
    first = asyncio.get_running_loop().time() + 0.5
    began, before = time.perf_counter(), cpu(broker.pid)
    await asyncio.gather(
        *(
            # Each line begins a little later than the one before, as clients do.
            beat(line, beats, first + INTERVAL_SECONDS / len(beats) * index / CONNECTIONS)
            for index, (line, beats) in enumerate(zip(lines, members, strict=True))
        )
    )
    spent, wall = cpu(broker.pid) - before, time.perf_counter() - began
    show(f"{GROUPS * ROUNDS:,} heartbeats, seconds", wall, "s")
    show("CPU of the broker, of one core", 100 * spent / wall, "%", "goal 15")
    show("CPU a heartbeat", 1e6 * spent / (GROUPS * ROUNDS), "µs")
    for line in lines:
        line.close()


# A hundred members.


def join_all(broker: BrokerProcess, protocol: str) -> None:
    """Time how long a hundred consumers take until all partitions are given out evenly."""
    topic = f"wide-{protocol}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    consumers = [
        Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": topic,
                "group.protocol": protocol,
                "enable.auto.commit": False,
            }
        )
        for _ in range(MEMBERS)
    ]
    began, before = time.perf_counter(), cpu(broker.pid)
    for consumer in consumers:
        consumer.subscribe([topic])
    want = [PARTITIONS // MEMBERS] * MEMBERS
    while [len(consumer.assignment()) for consumer in consumers] != want:
        for consumer in consumers:
            consumer.poll(0)
        if time.perf_counter() - began > 120:
            raise SystemExit(f"not all partitions were given out: {protocol}")
    taken = time.perf_counter() - began
    show(f"{MEMBERS} members, {PARTITIONS:,} partitions, {protocol}", taken, "s", "goal 5")
    show("CPU of the broker for that", cpu(broker.pid) - before, "s")
    for consumer in consumers:
        consumer.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="heartbeats,join", help="parts, parted by commas")
    wanted = parser.parse_args().only.split(",")
    flags = ("--max-connections", "20000")
    with (
        tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder,
        BrokerProcess(Path(folder) / "data", flags=flags) as broker,
    ):
        if "heartbeats" in wanted:
            asyncio.run(heartbeats(broker))
        if "join" in wanted:
            join_all(broker, "classic")
            join_all(broker, "consumer")


if __name__ == "__main__":
    main()
