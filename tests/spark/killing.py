"""Processes of a running Spark, killed one at a time while a topic is copied to another.

    python -m tests.spark.killing --kills 50

After each kill the driver is started again, if it ended; what the copy holds in the end is compared
with what was sent, by a reader (librdkafka) that shares no code with the source or the sink.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.testing.broker import BrokerProcess

say: Final = partial(print, flush=True)
_PARTITIONS: Final = 2
_RECORDS: Final = 1_500
"""Sent before each kill."""
_LOOK_SECONDS: Final = 0.05
_PATIENCE: Final = 300.0
_ROLES: Final = {
    "driver": ("tests.spark.copyjob", 12.0),
    "jvm": ("org.apache.spark.deploy.SparkSubmit", 12.0),
    "executor": ("CoarseGrainedExecutorBackend", 8.0),
    "python worker": ("spark.daemon pyspark.worker", 1.5),
    "source planner": ("python_streaming_source_runner", 4.0),
    "commit worker": ("python_streaming_sink_runner", 0.5),
    "broker": ("", 12.0),
}
"""Who is killed: what is in its command line, and how many seconds it lives, at the least."""


class Driver:
    """The program that copies, and all that it has started."""

    def __init__(self, store: str, checkpoint: Path, master: str, log: Path) -> None:
        self._command = [
            *(sys.executable, "-m", "tests.spark.copyjob"), store, str(checkpoint), master
        ]  # fmt: skip
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a session of its own."""
        with self._log.open("ab") as words:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                start_new_session=True,
            )  # fmt: skip

    def ended(self) -> int | None:
        """Return its status if it has ended."""
        return self._process.poll() if self._process is not None else 0

    def processes(self, mark: str) -> list[int]:
        """Return those of its processes that have a text in their command line."""
        if self._process is None:
            return []
        return [pid for pid in _family(self._process.pid) if mark in _command_line(pid)]

    def clear(self) -> None:
        """Kill whatever is left of it: a host that went down would leave nothing, either."""
        if self._process is None:
            return
        for pid in _family(self._process.pid):
            _kill(pid)
        self._process.wait()

    def finish(self) -> None:
        """Run it, again and again if need be, until it ends well."""
        deadline = monotonic() + _PATIENCE
        while (status := self.ended()) != 0:
            if monotonic() > deadline:
                raise TimeoutError(f"the copy does not end; see {self._log}")
            if status is not None:
                self.clear()
                self.start()
            sleep(_LOOK_SECONDS)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _family(leader: int) -> list[int]:
    """Return the processes of a session; Spark's Python workers have groups of their own in it."""
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _session_of(pid) == leader]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has just ended


def run(kills: int, roles: list[str], seed: int, folder: Path) -> None:
    """Kill so many times, and compare after each.

    Raises:
        AssertionError: a record is missing, or is there twice.
        TimeoutError: the copy does not come to its end.
    """
    chance = random.Random(seed)
    store = f"file://{folder / 'store'}"
    with BrokerProcess(folder / "host", flags=("--store", store)) as broker:
        _create(broker.bootstrap)
        sent: Counter[bytes] = Counter()
        for number in range(kills):
            role = roles[number % len(roles)]
            master = "local-cluster[2,1,1024]" if role == "executor" else "local[2,4]"
            sent.update(_send(broker.bootstrap, number))
            driver = Driver(store, folder / "checkpoint", master, folder / "driver.log")
            driver.start()
            try:
                told = _strike(driver, broker, role, chance)
                driver.finish()
            finally:
                driver.clear()
            found = Counter(_read(broker.bootstrap))
            missing, twice = sent - found, found - sent
            assert not missing, f"{len(missing)} records are missing, such as {min(missing)!r}"
            assert not twice, f"{len(twice)} records are there twice, such as {min(twice)!r}"
            say(f"kill {number + 1} ({told}): {found.total()} records, each once")


def _strike(driver: Driver, broker: BrokerProcess, role: str, chance: random.Random) -> str:
    """Kill one process of a role, some time after it was first seen; tell of it."""
    mark, life = _ROLES[role]
    find: Callable[[], list[int]] = (
        partial(driver.processes, mark) if role != "broker" else lambda: [broker.pid]
    )
    deadline = monotonic() + _PATIENCE
    while not find():
        if driver.ended() is not None or monotonic() > deadline:
            return f"no {role} was seen"
        sleep(_LOOK_SECONDS / 10)
    delay = chance.random() * life
    until = monotonic() + delay
    while monotonic() < until and driver.ended() is None:
        sleep(_LOOK_SECONDS / 10)
    victims = find()
    if not victims:
        return f"the {role} was gone after {delay:.2f} s"
    if role == "broker":
        broker.kill()
        broker.start()
    else:
        _kill(chance.choice(victims))
    return f"{role} after {delay:.2f} s"


def _create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, _PARTITIONS, 1) for name in ("t", "copy")]
    for future in admin.create_topics(topics).values():
        future.result(60)


def _send(bootstrap: str, number: int) -> Iterator[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    values = [b"%d-%d" % (number, index) for index in range(_RECORDS)]
    for index, value in enumerate(values):
        producer.produce("t", value=value, key=b"%d" % index, partition=index % _PARTITIONS)
    left = producer.flush(120)
    assert not left, f"{left} records could not be sent"
    return iter(values)


def _read(bootstrap: str) -> Iterator[bytes]:
    """Read all of the copy."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check"})
    try:
        for number in range(_PARTITIONS):
            place = TopicPartition("copy", number, 0)
            _, end = consumer.get_watermark_offsets(place, 60)
            consumer.assign([place])
            at = 0
            while at < end:
                message = consumer.poll(60)
                assert message is not None, f"nothing comes behind offset {at} of {number}"
                assert message.error() is None, message.error()
                at = (message.offset() or 0) + 1
                yield message.value() or b""
    finally:
        consumer.close()


def main() -> int:
    """Kill as often as told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--roles", nargs="*", choices=_ROLES, default=list(_ROLES))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    say(f"seed {args.seed}")
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="rookery-killing-") as name:
        run(args.kills, args.roles, args.seed, Path(name))
    say(f"{args.kills} kills in {monotonic() - began:.0f} s: well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
