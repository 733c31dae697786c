"""Processes of a running Spark, killed one at a time while a topic is copied or becomes a table.

    python -m tests.spark.killing --kills 50 --into iceberg

After each kill the driver is started again, if it ended. The final contents are compared with
what was sent, record by record: (topic, partition, offset, hash of the value). The topics are read
by librdkafka and the table by pyiceberg, which share no code with the source and the sinks.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog

from rookery.testing.broker import BrokerProcess
from rookery.testing.wait import wait_until
from tests.spark.processes import JVM, Driver, kill
from tests.spark.strike import order, told

say: Final = partial(print, flush=True)
_PARTITIONS: Final = 2
_RECORDS: Final = 1_500
"""Sent before each kill."""
_LOOK_SECONDS: Final = 0.005
_PATIENCE: Final = 900.0


class Role(NamedTuple):
    """A process that is killed."""

    mark: str = ""
    """A part of its command line."""
    seconds: float = 0.0
    """How long it lives, at the least: it is killed at any time in that."""
    point: str = ""
    """Whom the program kills when the sink has a batch, and Spark or the program does not know it
    yet; then the rest is empty."""


_JOBS: Final = {"topic": "tests.spark.copyjob", "iceberg": "tests.spark.tablejob"}
_ROLES: Final = {
    "driver": Role("tests.spark.", 12.0),
    "jvm": Role(JVM, 12.0),
    "executor": Role("CoarseGrainedExecutorBackend", 8.0),
    "python worker": Role("daemon pyspark.worker", 1.5),
    "source planner": Role("python_streaming_source_runner", 4.0),
    "commit worker": Role("python_streaming_sink_runner", 0.5),
    "broker": Role(seconds=12.0),
    "driver between the commits": Role(point="driver"),
    "jvm between the commits": Role(point="jvm"),
    "commit worker between the commits": Role(point="self"),
}
# A pipeline plans and commits in its driver.
_TOPIC_ONLY: Final = frozenset(
    ("source planner", "commit worker", "commit worker between the commits")
)

Row = tuple[str, int, int, str]
"""Topic, partition, offset, and the value's hash."""


class Scene(NamedTuple):
    """Where all of it happens."""

    into: str
    folder: Path
    broker: BrokerProcess
    chance: random.Random

    @property
    def store(self) -> str:
        """The URL of the log."""
        return f"file://{self.folder / 'store'}"

    def driver(self, role: str) -> Driver:
        """Return the program, not started yet."""
        master = "local-cluster[2,1,1024]" if role == "executor" else "local[2,4]"
        job = [sys.executable, "-m", _JOBS[self.into], self.store, str(self.folder), master]
        return Driver(job, self.folder / "driver.log")


def run(kills: int, roles: list[str], seed: int, folder: Path, into: str = "topic") -> Counter[str]:
    """Kill a given number of times, and compare after each; return how often each was killed.

    Raises:
        AssertionError: a record is missing, occurs twice, or is another.
        TimeoutError: the program does not come to its end.
    """
    killed: Counter[str] = Counter()
    flags = ("--store", f"file://{folder / 'store'}")
    with BrokerProcess(folder / "host", flags=flags) as broker:
        scene = Scene(into, folder, broker, random.Random(seed))
        _create(broker.bootstrap)
        for number in range(kills):
            role = roles[number % len(roles)]
            _send(broker.bootstrap, number)
            words = _kill_once(scene, role, killed)
            count = _compare(scene)
            say(f"kill {number + 1} ({words}): {count} records, each once")
    return killed


def _kill_once(scene: Scene, role: str, killed: Counter[str]) -> str:
    driver = scene.driver(role)
    if point := _ROLES[role].point:
        order(scene.folder, point)
    driver.start()
    try:
        if point:
            driver.finish()
            words = _after_point(scene, role)
        else:
            words = _strike(driver, scene, role)
            driver.finish()
    finally:
        driver.clear()
    killed[role if words.startswith(role) else "none"] += 1
    return words


def _after_point(scene: Scene, role: str) -> str:
    where = told(scene.folder)
    assert where, f"{role}: the program did not come to the point"
    assert "with Spark" not in where, f"{role}: Spark knew of the commit: {where}"
    return f"{role}: {where}"


def _strike(driver: Driver, scene: Scene, name: str) -> str:
    """Kill one process of a role, some time after it was first seen; report it."""
    role = _ROLES[name]
    find: Callable[[], list[int]] = (
        partial(driver.processes, role.mark) if role.mark else lambda: [scene.broker.pid]
    )
    wait_until(
        lambda: driver.ended() is not None or find(),
        f"a {name}",
        seconds=_PATIENCE,
        pause=_LOOK_SECONDS,
    )
    if driver.ended() is not None:
        return f"no {name} was seen"
    delay = scene.chance.random() * role.seconds
    until = monotonic() + delay
    while monotonic() < until and driver.ended() is None:
        sleep(_LOOK_SECONDS)
    victims = find()
    if not victims:
        return f"the {name} was gone after {delay:.2f} s"
    if not role.mark:
        scene.broker.kill()
        scene.broker.start()
    else:
        kill(scene.chance.choice(victims))
    return f"{name} after {delay:.2f} s"


def _compare(scene: Scene) -> int:
    """Compare what was sent with what came of it; return how many records there are."""
    sent = Counter(_read(scene.broker.bootstrap, "t"))
    if scene.into == "topic":
        # Each record went to the partition it came from, in order: to the very same offset.
        written = Counter(("t", *row[1:]) for row in _read(scene.broker.bootstrap, "copy"))
    else:
        written = Counter(_read_table(scene.folder))
    missing, more = sent - written, written - sent
    assert not missing, f"{missing.total()} records are missing, such as {min(missing)}"
    assert not more, f"{more.total()} records are there twice, such as {min(more)}"
    return written.total()


def _create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, _PARTITIONS, 1) for name in ("t", "copy")]
    for future in admin.create_topics(topics).values():
        future.result(60)


def _send(bootstrap: str, number: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for index in range(_RECORDS):
        value = b"%d-%d" % (number, index)
        producer.produce("t", value=value, key=b"%d" % index, partition=index % _PARTITIONS)
    left = producer.flush(120)
    assert not left, f"{left} records could not be sent"


def _read(bootstrap: str, topic: str) -> Iterator[Row]:
    """Read all of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check"})
    try:
        for number in range(_PARTITIONS):
            place = TopicPartition(topic, number, 0)
            _, end = consumer.get_watermark_offsets(place, 60)
            consumer.assign([place])
            at = 0
            while at < end:
                message = consumer.poll(60)
                assert message is not None, f"nothing comes after offset {at} of {number}"
                assert message.error() is None, message.error()
                at = (message.offset() or 0) + 1
                yield topic, number, at - 1, _hash(message.value() or b"")
    finally:
        consumer.close()


def _read_table(folder: Path) -> Iterator[Row]:
    """Read all of the table."""
    catalog = load_catalog("rookery", type="sql", uri=f"sqlite:///{folder / 'catalog.db'}")
    rows = catalog.load_table("default.table").scan().to_arrow()
    for row in rows.select(["topic", "partition", "offset", "value"]).to_pylist():
        yield row["topic"], row["partition"], row["offset"], _hash(row["value"])


def _hash(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def main() -> int:
    """Kill a given number of times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--into", choices=_JOBS, default="topic")
    parser.add_argument("--roles", nargs="*", choices=_ROLES, default=list(_ROLES))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    roles = [role for role in args.roles if args.into == "topic" or role not in _TOPIC_ONLY]
    say(f"seed {args.seed}")
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="rookery-killing-") as name:
        killed = run(args.kills, roles, args.seed, Path(name), args.into)
    say(f"{args.kills} kills in {monotonic() - began:.0f} s: well; {dict(killed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
