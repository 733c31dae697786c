"""A rebalance storm: members come and go all the time, and no row is lost.

    python -m tests.consumer.storm --seconds 60 --rows 1000000

Three seats, twelve partitions, rows that are written all the while; every half second a seat is
left or taken. Each member commits what it has processed. Then: every row was processed; twice only
those between the last commit and the end of a stay; offsets never went back within a stay; nothing
was handed out of a partition that had been taken; the group's offsets never went back.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import numpy as np

import rookery
from rookery.client.client import Client
from rookery.model.partition import TopicPartition
from rookery.testing.broker import BrokerProcess
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, pack_rows, rows
from rookery.testing.wait import wait_until
from tests.consumer.hard.stays import Ledger, Stay

say: Final = partial(print, flush=True)
PARTITIONS: Final = 12
SEATS: Final = 3
QUICK_BEATS: Final = ("--consumer-groups-heartbeat-interval-ms", "200")
_POLL_MS: Final = 200
_WITHIN: Final = 180.0
_MOST_ROUNDS: Final = 1_000
_LOOK: Final = 0.1
_SLOW: Final = 0.1
_SLOW_SECONDS: Final = 1.0


class Outcome(NamedTuple):
    """What a storm was like."""

    rows: int
    lives: int
    stays: int
    twice: int


def main() -> int:
    """Run it; 0 if all is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--every", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--protocol", choices=("consumer", "classic"), default="consumer")
    parser.add_argument("--on", choices=("rookery", "kafka"), default="rookery")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    say(f"seed {args.seed}, on {args.on}")
    with _cluster(args.on) as bootstrap, Logs(bootstrap) as logs:
        outcome = storm(logs, args.rows, args.seconds, args.every, args.seed, args.protocol)
    say(
        f"{outcome.rows:,} rows, {outcome.lives} members, {outcome.stays} stays: none lost, "
        f"{outcome.twice:,} processed twice, each between a commit and the end of a stay"
    )
    return 0


@contextmanager
def _cluster(name: str) -> Iterator[str]:
    if name == "kafka":
        with KafkaServer() as kafka:
            yield kafka.bootstrap
        return
    with tempfile.TemporaryDirectory(prefix="rookery-storm-") as folder:
        flags = ["--durability", "os", *QUICK_BEATS]
        with BrokerProcess(Path(folder) / "data", workers=2, flags=flags) as broker:
            yield broker.bootstrap


def storm(
    logs: Logs,
    total: int,
    seconds: float,
    every: float,
    seed: int,
    protocol: str = "consumer",
    *,
    least_stays: int = 0,
) -> Outcome:
    """Raise a storm until there were enough stays, and check that all went right."""
    topic = logs.create("storm", PARTITIONS)
    ledger, group = Ledger(), f"storm-{topic}"
    per_partition = total // PARTITIONS
    ends = [per_partition] * PARTITIONS
    seats: list[Member | None] = [None] * SEATS
    gone: list[Member] = []
    chance = random.Random(seed)
    sit = partial(Member, logs, topic, group, ledger, protocol)
    with Producer(logs, topic, per_partition, seconds) as producer, Watch(logs, group) as watch:
        for number in range(_MOST_ROUNDS):
            if number >= int(seconds / every) and len(ledger.stays) >= least_stays:
                break
            _sit_or_leave(seats, gone, chance, sit)
            producer.over.wait(every * (number + 1) - producer.since())
        producer.join()
        for at, seat in enumerate(seats):
            seats[at] = seat or sit()
        members = [*gone, *(seat for seat in seats if seat is not None)]

        def rest() -> tuple[object, int]:
            _raise_faults(members)
            return ledger.missing(ends), per_partition * PARTITIONS - watch.committed()

        wait_until(
            rest, "rows to read and to commit", accepts=lambda rest: not any(rest), seconds=_WITHIN
        )
        for member in members:
            member.leave()
        for member in members:
            member.join()
    _raise_faults(members)
    assert not watch.faults, watch.faults
    faults = ledger.faults(PARTITIONS)
    assert not faults, "\n".join(faults[:20])
    done = per_partition * PARTITIONS
    return Outcome(done, len(members), len(ledger.stays), ledger.rows() - done)


def _sit_or_leave(
    seats: list[Member | None], gone: list[Member], chance: random.Random, sit: Callable[[], Member]
) -> None:
    at = chance.randrange(len(seats))
    seat = seats[at]
    if seat is None:
        seats[at] = sit()
    elif sum(other is not None for other in seats) > 1:
        seat.leave()
        gone.append(seat)
        seats[at] = None


def _raise_faults(members: Sequence[Member]) -> None:
    for member in members:
        if member.fault is not None:
            raise member.fault


class Member(threading.Thread):
    """Reads as a member of the group, and commits every batch, until it must leave."""

    def __init__(self, logs: Logs, topic: str, group: str, ledger: Ledger, protocol: Any) -> None:
        super().__init__(daemon=True)
        self.name = f"member {ledger.now()}"
        self._ledger = ledger
        self._chance = random.Random(self.name)
        self._leaving = threading.Event()
        self._current: dict[int, Stay] = {}
        self._known: dict[tuple[int, int], Stay] = {}
        self.fault: BaseException | None = None
        """The reason for an early end."""
        self._stream = rookery.follow(
            logs.bootstrap,
            topic,
            start="earliest",
            group=group,
            group_protocol=protocol,
            columns=["partition", "offset"],
            batch_rows=2_000,
            max_idle=timedelta(milliseconds=20),
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
        )
        self.start()

    def leave(self) -> None:
        """Have it leave; do not wait."""
        self._leaving.set()

    def run(self) -> None:
        """Be a member."""
        try:
            with self._stream:
                while not self._leaving.is_set():
                    self._read()
                for stay in self._current.values():
                    self._end(stay)
        except BaseException as error:  # noqa: BLE001 (reported by `fault`)
            self.fault = error

    def _on_assigned(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._current[place.partition] = self._ledger.begin(self.name, place.partition)

    def _on_revoked(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._end(self._current[place.partition])

    def _end(self, stay: Stay) -> None:
        if stay.ended is None:
            stay.ended = self._ledger.now()

    def _read(self) -> None:
        asked = self._ledger.now()
        batch = self._stream.poll(_POLL_MS)
        if batch is None:
            return
        numbers = {place.partition: number for place, number in batch.checkpoint.stays.items()}
        partitions, offsets = (np.asarray(batch[name]) for name in ("partition", "offset"))
        seen: list[tuple[Stay, int]] = []
        for partition in np.unique(partitions).tolist():
            stay = self._stay(partition, numbers[partition])
            for some in _runs(offsets[partitions == partition]):
                stay.offsets.append(some)
                stay.asked.append(asked)
                seen.append((stay, some.stop))
        if self._chance.random() < _SLOW:
            # Partitions go and come back while a batch is being processed.
            self._leaving.wait(self._chance.uniform(0, _SLOW_SECONDS))
        batch.commit()
        for stay, end in seen:
            # Partitions that were taken meanwhile may be missing.
            if stay.ended is None:
                stay.committed = end

    def _stay(self, partition: int, number: int) -> Stay:
        """Return which stay rows are of: the latest, unless they were handed out before it."""
        return self._known.setdefault((partition, number), self._current[partition])


def _runs(offsets: np.ndarray[Any, np.dtype[np.int64]]) -> list[range]:
    """Return offsets as ranges without holes."""
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    return [range(int(run[0]), int(run[-1]) + 1) for run in np.split(offsets, cuts)]


class Producer(threading.Thread):
    """Writes a given number of rows to each partition, evenly over a time."""

    def __init__(self, logs: Logs, topic: str, per_partition: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._logs = logs
        self._topic = topic
        self._left = per_partition
        self._step = max(int(per_partition / max(seconds, 1.0) / 10), 1)
        self._pause = seconds * self._step / per_partition
        self._began = monotonic()
        self.over = threading.Event()
        """Set when there is no more time."""

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()

    def since(self) -> float:
        """Return how many seconds have gone since the start."""
        return monotonic() - self._began

    def run(self) -> None:
        """Write it all."""
        written, step = 0, 0
        while self._left and not self.over.wait(step * self._pause - self.since()):
            some = min(self._step, self._left)
            batch = pack_rows(rows([NOON + written + n for n in range(some)], b"x" * 100))
            self._logs.append(self._topic, dict.fromkeys(range(PARTITIONS), batch))
            written, step, self._left = written + some, step + 1, self._left - some


class Watch(threading.Thread):
    """Asks for the group's offsets all the while: they must not go back."""

    def __init__(self, logs: Logs, group: str) -> None:
        super().__init__(daemon=True)
        self._servers = logs.bootstrap
        self._group = group
        self.offsets: dict[TopicPartition, int] = {}
        """As they were when last asked."""
        self.faults: list[str] = []
        """Where they went back."""
        self.over = threading.Event()
        """Set when it must end."""

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()

    def committed(self) -> int:
        """Return how many rows the group has committed."""
        return sum(self.offsets.values())

    def run(self) -> None:
        """Look until told to end."""
        asyncio.run(self._look())

    async def _look(self) -> None:
        async with Client(self._servers) as client:
            while not self.over.is_set():
                commits = await client.groups.committed_offsets(self._group)
                for place, commit in commits.items():
                    before = self.offsets.get(place, 0)
                    if commit.offset < before:
                        self.faults.append(f"{place.text}: {before} and then {commit.offset}")
                    self.offsets[place] = commit.offset
                await asyncio.sleep(_LOOK)


if __name__ == "__main__":
    sys.exit(main())
