"""A directory of a real Kafka served by our broker, and by Kafka again afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from rookery.broker.settings import BrokerSettings
from rookery.testing.broker import BrokerProcess
from rookery.testing.folder import copy_folder
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkadir import CODECS, MadeDirectory
from rookery.testing.kafkasight import SECONDS, ClusterSight, look
from rookery.testing.properties import KafkaSettings
from rookery.testing.servedbroker import ServedBroker
from tests.logdir.conftest import Copy
from tests.logdir.test_reading import expected_by_time

pytestmark = pytest.mark.kafka

File = tuple[int, int, str]
"""Inode, time of the last change, and checksum."""


def files_of(folder: Path) -> dict[Path, File]:
    """Return every file and folder, with all that a write to it would change."""
    marks = {}
    for path in sorted([folder, *folder.rglob("*")]):
        stat = path.stat()
        digest = "" if path.is_dir() else sha256(path.read_bytes()).hexdigest()
        marks[path] = (stat.st_ino, stat.st_mtime_ns, digest)
    return marks


def shown(seen: ClusterSight) -> ClusterSight:
    """Leave out what Kafka alone says: groups without an offset, and times it does not find.

    Of a compacted segment Kafka may say that no record is as late as one that is there.
    """
    topics = {
        name: replace(
            topic,
            partitions={
                index: replace(part, by_time=expected_by_time(part))
                for index, part in topic.partitions.items()
            },
        )
        for name, topic in seen.topics.items()
    }
    groups = {name: offsets for name, offsets in seen.groups.items() if offsets}
    return replace(seen, topics=topics, groups=groups)


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[ServedBroker]:
    """Serve a directory in this process."""
    made = BrokerSettings(log_dir=str(folder), upkeep_interval_ms=3_600_000, **settings)
    with ServedBroker(folder.parent / "unused", made) as broker:
        yield broker


def test_read_only_broker_shows_the_same_as_kafka_and_writes_nothing(
    seen: ClusterSight, copied: Copy
) -> None:
    folder = copied(seen)
    before = files_of(folder)
    with served(folder, read_only=True) as broker:
        sight = look(broker, seen.folder, seen.cluster_id)
    assert shown(sight) == shown(seen)
    assert files_of(folder) == before


def test_write_to_a_read_only_broker_is_refused(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    before = files_of(folder)
    with served(folder, read_only=True) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        failures: list[Any] = []
        producer.produce("large", b"no", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(SECONDS) == 0
        assert [failure.name() for failure in failures] == ["POLICY_VIOLATION"]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        [future] = admin.create_topics([NewTopic("no", 1, 1)]).values()
        with pytest.raises(KafkaException):
            future.result(SECONDS)
        # A consumer's group lives in memory, so that tools which have one work.
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["codec-zstd"])
        messages = consumer.consume(10, timeout=SECONDS)
        assert len(messages) == 10
        consumer.commit(asynchronous=False)
        consumer.close()
    assert files_of(folder) == before


@dataclass
class Home:
    """A folder that a Kafka and our broker have in turn."""

    kafka: KafkaServer
    folder: Path

    def look(self, server: Any) -> ClusterSight:
        return shown(look(server, self.folder, "cluster"))


@pytest.fixture
def home(made: MadeDirectory, tmp_path: Path) -> Iterator[Home]:
    data = tmp_path / "kafka" / "node-1" / "data"
    data.parent.mkdir(parents=True)
    copy_folder(made.stopped.folder, data)
    settings = KafkaSettings(properties={"log.retention.ms": "-1", "log.cleaner.enable": "false"})
    with_kafka = KafkaServer(settings, folder=tmp_path / "kafka")
    try:
        yield Home(with_kafka, data)
    finally:
        with_kafka.close()


def done(futures: dict[Any, Any]) -> None:
    """Wait for all of them."""
    for future in futures.values():
        future.result(SECONDS)


class Worker:
    """Does through clients what people do, the same on any broker."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def work(self) -> None:
        self.topics()
        for codec in CODECS:
            self.produce(f"codec-{codec}", codec)
        self.produce("append-time", "none")
        self.produce("large", "none", size=30_000, count=120)
        self.transactions()
        self.groups()
        [deleted] = self.admin.delete_records([TopicPartition("large", 0, 500)]).values()
        assert deleted.result(SECONDS).low_watermark >= 500

    def topics(self) -> None:
        names = [f"{self.name}-{number}" for number in range(3)]
        settings = {"retention.ms": "-1", "segment.bytes": "1048576"}
        done(self.admin.create_topics([NewTopic(name, 2, 1, config=settings) for name in names]))
        self.produce(names[0], "none")
        self.produce(names[1], "none")
        done(self.admin.create_partitions([NewPartitions(names[0], 3)]))
        entries = [
            ConfigEntry(
                "max.message.bytes", "3000000", incremental_operation=AlterConfigOpType.SET
            ),
            ConfigEntry("segment.bytes", "", incremental_operation=AlterConfigOpType.DELETE),
        ]
        resource = ConfigResource(ResourceType.TOPIC, names[0], incremental_configs=entries)
        done(self.admin.incremental_alter_configs([resource]))
        done(self.admin.delete_topics([names[2]]))

    def produce(self, topic: str, codec: str, *, size: int = 40, count: int = 60) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "log_level": 0, "enable.idempotence": True}
        producer = Producer({**settings, "compression.type": codec, "linger.ms": 2})
        for number in range(count):
            value = f"{self.name} {number} ".encode().ljust(size, b".")
            producer.produce(topic, value, str(number).encode(), headers=[("from", b"here")])
            producer.poll(0)
        assert producer.flush(SECONDS) == 0

    def transactions(self) -> None:
        # The id is one that Kafka knows already: its epoch continues.
        settings = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        producer = Producer({**settings, "transactional.id": "tx-one"})
        producer.init_transactions(SECONDS)
        consumer = Consumer({**settings, "group.id": "group-yes"})
        for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce("tx", f"{self.name} {number}".encode(), partition=partition)
            producer.send_offsets_to_transaction(
                [TopicPartition("tx", 0, 100 + number)],
                consumer.consumer_group_metadata(),
                SECONDS,
            )
            producer.flush(SECONDS)
            end(SECONDS)
        consumer.close()

    def groups(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"group-{self.name}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe(["codec-zstd", "codec-gzip"])
        assert len(consumer.consume(50, timeout=SECONDS)) == 50
        consumer.commit(asynchronous=False)
        consumer.close()
        done(self.admin.delete_consumer_groups(["group-b"], request_timeout=60))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_kafka_and_our_broker_continue_each_others_directory(home: Home, end: str) -> None:
    ours = BrokerProcess(
        home.folder.parent / "ours",
        flags=["--log-dir", str(home.folder), "--defaults", "log.retention.ms=-1"],
    )
    with ours:
        Worker(ours.bootstrap, "ours").work()
        at_our_end = home.look(ours)
        if end == "stop":
            assert ours.stop(within=60) == 0
        else:
            ours.kill()
    home.kafka.start()
    assert home.look(home.kafka) == at_our_end
    if end == "kill":
        return  # the rest is the same as after a stop
    kafka = Worker(home.kafka.bootstrap, "kafka")
    kafka.produce("codec-zstd", "zstd")
    kafka.transactions()
    at_its_end = home.look(home.kafka)
    assert home.kafka.stop() is not None
    _check_log(home.kafka)
    with ours:
        assert home.look(ours) == at_its_end
        assert ours.stop(within=60) == 0


def _check_log(kafka: KafkaServer) -> None:
    """Kafka must not have found anything wrong with what we wrote."""
    lines = [
        line
        for line in kafka.log.read_text().splitlines()
        # Kafka never believes that its metadata was closed in order.
        if "__cluster_metadata" not in line
    ]
    for word in ("Corrupt", "corrupt", "overlapping", "Recovering unflushed"):
        assert not [line for line in lines if word in line]


def test_a_directory_has_one_broker_at_a_time(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    with BrokerProcess(folder.parent / "one", flags=["--log-dir", str(folder)]):
        for flags in ([], ["--read-only"]):
            other = BrokerProcess(folder.parent / "two", flags=["--log-dir", str(folder), *flags])
            with pytest.raises(RuntimeError, match="in use by another process"):
                other.start()


def test_torn_tail_is_truncated_and_the_rest_kept(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.killed)
    log = max((folder / "large-0").glob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(whole[:-7])
    (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with served(folder) as broker:
        sight = look(broker, made.killed.folder, made.killed.cluster_id)
    before = made.killed.topics["large"].partitions[0]
    after = sight.topics["large"].partitions[0]
    assert before.records[: len(after.records)] == after.records
    assert len(before.records) - 20 < len(after.records) < len(before.records)
    assert after.high == after.records[-1].offset + 1
    assert log.stat().st_size < len(whole) - 7
    sight.topics["large"] = made.killed.topics["large"]
    assert shown(sight).topics == shown(made.killed).topics
