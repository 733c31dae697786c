"""Kills brokers at random moments under load, and checks all promises after each kill.

To extend it: write another `Blow`, and give it to `ordeal`.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from typing import Final, Protocol, TypeVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rookery.testing.broker import BrokerProcess
from rookery.testing.wait import PATIENCE_SECONDS
from tests.crash.load import Load, check, read_all

PARTITIONS: Final = 4
TOPIC: Final = "ordeal"


class Target(Protocol):
    """Whatever is struck."""

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""


T = TypeVar("T", bound=Target)

Blow = Callable[[T, random.Random], str]
"""Harms a running target, makes it run again, and returns what it did."""


def kill_all(broker: BrokerProcess, _chance: random.Random) -> str:
    """Kill every process, then start them again."""
    broker.kill()
    broker.start()
    return "all"


def kill_one(broker: BrokerProcess, chance: random.Random) -> str:
    """Kill one of several workers; the supervisor restarts it."""
    victims = broker.worker_pids()
    if not victims:  # the last one has not been restarted yet
        return "nobody"
    victim = chance.choice(victims)
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return f"worker {victim}"


def blows(workers: int) -> Sequence[Blow[BrokerProcess]]:
    """Return the ways to kill a broker of several processes, the frequent ones often."""
    return (kill_all,) if workers == 1 else (kill_one, kill_one, kill_all)


def ordeal(
    target: T,
    ways: Sequence[Blow[T]],
    kills: int,
    seed: int,
    report: Callable[[str], None] = print,
) -> int:
    """Strike a started target several times; return how many records were acknowledged."""
    chance, pause = random.Random(seed), Event()
    report(f"seed {seed}, {kills} kills")
    create_topic(target.bootstrap)
    before: list[list[int]] = [[] for _ in range(PARTITIONS)]
    with Load(target.bootstrap, TOPIC, PARTITIONS, seed) as load:
        for index in range(kills):
            load.wait_for(1)
            pause.wait(chance.random() * 0.4)  # the random moment
            done = chance.choice(ways)(target, chance)
            acked = load.acked()
            # All of it is read again every tenth time, the last part every time.
            known = before if index % 10 else None
            now = read_all(target.bootstrap, TOPIC, PARTITIONS, known)
            check(before, now, acked)
            before = now
            report(f"kill {index + 1} ({done}): {sum(map(len, now))} records, all as promised")
    # After the last blow everything that was sent must be there.
    check(before, read_all(target.bootstrap, TOPIC, PARTITIONS), load.acked())
    return load.count()


def create_topic(bootstrap: str, topic: str = TOPIC) -> None:
    """Make the topic that is written to."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        future.result(PATIENCE_SECONDS)
