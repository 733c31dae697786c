"""A process that pauses beyond its lease and resumes is fenced, and does no harm."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from time import sleep

from rookery.testing.broker import BrokerProcess
from rookery.testing.probe import brokers_seen
from rookery.testing.wait import PATIENCE_SECONDS, wait_until
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, check, read_all

SEED = int(os.environ.get("ROOKERY_TEST_SEED", str(random.randrange(1 << 32))))
# Short leases, so that a pause need not be long.
FLAGS = ("--session-timeout-ms", "1000", "--beat-interval-ms", "200")


def test_worker_paused_past_its_lease_rejoins_as_a_new_incarnation(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")  # noqa: T201 (to run it again)
    nothing: list[list[int]] = [[] for _ in range(PARTITIONS)]
    with BrokerProcess(tmp_path / "data", workers=3, flags=FLAGS) as broker:
        create_topic(broker.bootstrap)
        with Load(broker.bootstrap, TOPIC, PARTITIONS, SEED) as load:
            load.wait_for(20)
            sleeper = broker.ready["brokers"][0]["pid"]
            others = [broker.port + 2, broker.port + 3]

            while not _pause(sleeper, chance, others):
                load.wait_for(1)

            _wait_for(others, 3)
            load.wait_for(20)
        now = read_all(broker.bootstrap, TOPIC, PARTITIONS)

        check(nothing, now, load.acked())
        assert "was expired and joins again" in broker.words()


def _pause(pid: int, chance: random.Random, others: list[int]) -> bool:
    """Let a process sleep until the others have given it up; say whether they have.

    They cannot while it sleeps within a commit: then it holds the lock that all of a host share,
    no process can write, and nothing can go wrong.
    """
    sleep(chance.random() * 0.3)  # the random moment
    os.kill(pid, signal.SIGSTOP)
    try:
        _wait_for(others, 2, seconds=4)
    except TimeoutError:
        return False
    else:
        return True
    finally:
        os.kill(pid, signal.SIGCONT)


def _wait_for(ports: list[int], count: int, seconds: float = PATIENCE_SECONDS) -> None:
    """Return when a given number of brokers are seen on all ports."""
    wait_until(
        lambda: {len(brokers_seen(port)) for port in ports},
        f"{count} brokers",
        accepts={count}.__eq__,
        seconds=seconds,
        pause=0.05,
    )
