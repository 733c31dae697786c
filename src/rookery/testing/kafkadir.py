"""A data directory that a real Kafka has made, and what its clients saw in it before it ended.

    made = make(tmp_path)       # some twenty topics; about a minute
    made.killed.folder          # as kill -9 left it
    made.stopped.folder         # as an orderly shutdown left it, one life later

It has every codec, several segments, compaction, retention and DeleteRecords; transactions that
were committed, aborted and left open; topics deleted, made again and made larger; changed settings,
groups, users and rules of access. The server ran four times; two runs ended without a shutdown.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from rookery.formats.logfile.names import LOG_STARTS
from rookery.testing.folder import copy_folder
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkasight import (
    SECONDS,
    T0,
    ClusterSight,
    consume,
    look,
    make_consumer,
    retry,
    watermarks,
)
from rookery.testing.properties import KafkaSettings
from rookery.testing.wait import wait_until

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_PROPERTIES: Final = {
    "log.cleaner.backoff.ms": "100",
    # Records have fixed times in the past; only the limit of size deletes any of them.
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "60000",
    "file.delete.delay.ms": "60000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    # The directory must contain snapshots of the metadata.
    "metadata.log.max.record.bytes.between.snapshots": "6000",
    "auto.create.topics.enable": "false",
}


@dataclass(slots=True)
class MadeDirectory:
    """The same directory at two moments."""

    killed: ClusterSight
    stopped: ClusterSight


def make(home: Path) -> MadeDirectory:
    """Run a Kafka in a folder through all steps listed above; this takes about a minute."""
    server = KafkaServer(KafkaSettings(properties=_PROPERTIES), folder=home / "kafka")
    try:
        maker = _Maker(server)
        for life in (maker.first, maker.second, maker.third):
            server.start()
            life()
        seen = look(server, home / "killed")
        server.kill()
        copy_folder(server.data, home / "killed")
        server.start()
        maker.fourth()
        again = look(server, home / "stopped")
        server.stop()
        copy_folder(server.data, home / "stopped")
    finally:
        server.close()
    return MadeDirectory(seen, again)


class _Maker:
    """Creates the contents of the directory through Kafka's clients and tools."""

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self.admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})

    # The lives.

    def first(self) -> None:
        """Make topics and write to them; end by kill -9."""
        self._create()
        for codec in CODECS:
            with self._producer(**{"compression.type": codec}) as producer:
                for n in range(300):
                    producer.produce(
                        f"codec-{codec}", f"value {n} of {codec}".encode() * 3, str(n).encode(),
                        partition=n % 3, timestamp=T0 + n * 1000,
                        headers=[("n", str(n).encode()), ("empty", b""), ("null", None)],
                    )  # fmt: skip
        self._write_large()
        self._compact()
        self._transactions("tx-one", "tx", (True, False, True, False, False, True))
        self._config("configured", {"retention.ms": "100000000", "max.message.bytes": "2000000"})
        self._config("configured", {"retention.ms": None, "flush.messages": "5"})
        _wait_all(self.admin.delete_topics(["gone-1", "recreated"], operation_timeout=30))
        retry(lambda: _wait_all(self.admin.create_topics([NewTopic("recreated", 2, 1)])))
        self._plain("recreated", 20)
        self._delete_records("deleted", 70)
        self.server.kill()

    def second(self) -> None:
        """Continue after a crash: more records, groups, a larger topic; end in order."""
        for codec in CODECS:
            self._plain(f"codec-{codec}", 30, **{"compression.type": codec})
        _wait_all(self.admin.create_partitions([NewPartitions("grown", 3)]))
        self._plain("grown", 60)
        self._odd_records()
        self._groups()
        self._security()
        _wait_all(self.admin.delete_topics(["gone-2"], operation_timeout=30))
        self.server.stop()

    def third(self) -> None:
        """Write in a third leader epoch, transactions of two producers among it."""
        self._transactions("tx-two", "tx", (False, True))
        self._interleave()
        self._offsets_in_transactions()
        self._plain("append-time", 40)
        self._delete_records("emptied", -1)
        self._leave_open()

    def fourth(self) -> None:
        """Initialise the transactional id whose transaction was left open, which aborts it."""
        self._transactional("tx-left")

    def _leave_open(self) -> None:
        producer = self._transactional("tx-left")
        producer.begin_transaction()
        for n in range(5):
            producer.produce("tx-open", f"open {n}".encode(), partition=0)
        producer.flush(SECONDS)
        # As if its process were suspended: it neither ends the transaction nor disconnects.
        self._kept = producer

    # Parts of the lives above.

    def _create(self) -> None:
        segments = {"segment.bytes": "1048576"}
        topics = [NewTopic(f"codec-{codec}", 3, 1) for codec in CODECS]
        topics += [
            NewTopic("large", 1, 1, config=segments),
            NewTopic("retained", 1, 1, config={**segments, "retention.bytes": "2097152"}),
            NewTopic(
                "compacted",
                1,
                1,
                config={
                    **segments,
                    "cleanup.policy": "compact",
                    "min.cleanable.dirty.ratio": "0.01",
                },
            ),
            NewTopic("deleted", 1, 1),
            NewTopic("emptied", 1, 1),
            NewTopic("tx", 2, 1),
            NewTopic("tx-mixed", 1, 1),
            NewTopic("tx-open", 1, 1),
            NewTopic("odd", 1, 1, config={"max.message.bytes": "3000000"}),
            NewTopic("append-time", 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
            NewTopic("never-written", 2, 1),
            NewTopic("configured", 1, 1, config={"cleanup.policy": "delete"}),
            NewTopic("grown", 1, 1),
            NewTopic("with.dots_and-dashes", 1, 1),
            NewTopic("gone-1", 1, 1),
            NewTopic("gone-2", 1, 1),
            NewTopic("recreated", 1, 1),
        ]
        _wait_all(self.admin.create_topics(topics, operation_timeout=60))
        for name in ("deleted", "emptied", "gone-1", "gone-2", "with.dots_and-dashes", "grown"):
            self._plain(name, 100)
        self._plain("tx-open", 3)

    def _producer(self, **settings: Any) -> _FlushedBlock:
        return _FlushedBlock(
            {"bootstrap.servers": self.server.bootstrap, "log_level": 0, **settings}
        )

    def _plain(self, topic: str, count: int, **settings: Any) -> None:
        with self._producer(**{"enable.idempotence": True, "linger.ms": 1, **settings}) as producer:
            for n in range(count):
                producer.produce(topic, f"{topic} {n}".encode(), str(n % 7).encode())

    def _write_large(self) -> None:
        """Write more than one segment, in batches large enough for entries in the indexes."""
        for topic, count in (("large", 3000), ("retained", 4500)):
            with self._producer(**{"batch.size": 20_000, "linger.ms": 50}) as producer:
                for n in range(count):
                    producer.produce(topic, bytes([n % 251]) * 1200, timestamp=T0 + n * 10)
        wait_until(lambda: watermarks(self.server.bootstrap, "retained", 0)[0] > 0)

    def _compact(self) -> None:
        with self._producer(**{"batch.size": 20_000}) as producer:
            for n in range(4000):
                value = None if n % 50 == 7 else bytes([n % 251]) * 1000
                producer.produce("compacted", value, f"key {n % 40}".encode(), timestamp=T0 + n)
        # The cleaner skips the active segment; the others lose records.
        wait_until(lambda: len(consume(self.server.bootstrap, "compacted", 0)) < 3500)

    def _transactional(self, name: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(SECONDS)
        return producer

    def _transactions(self, name: str, topic: str, outcomes: tuple[bool, ...]) -> None:
        producer = self._transactional(name)
        for number, is_commit in enumerate(outcomes):
            producer.begin_transaction()
            for n in range(4):
                producer.produce(topic, f"{name} {number}.{n}".encode(), partition=n % 2)
            producer.flush(SECONDS)
            end = producer.commit_transaction if is_commit else producer.abort_transaction
            end(SECONDS)

    def _interleave(self) -> None:
        """Let two transactions overlap, so that the last stable offset lags."""
        first, second = self._transactional("tx-a"), self._transactional("tx-b")
        first.begin_transaction()
        second.begin_transaction()
        for n in range(6):
            for name, producer in (("a", first), ("b", second)):
                producer.produce("tx-mixed", f"{name}{n}".encode(), partition=0)
                producer.flush(SECONDS)
        second.abort_transaction(SECONDS)
        self._plain("tx-mixed", 3)
        first.commit_transaction(SECONDS)

    def _odd_records(self) -> None:
        """Write unusual records: no key, no value, large, empty, times that decrease."""
        with self._producer(**{"message.max.bytes": 3_000_000}) as producer:
            producer.produce("odd", None, b"only a key", timestamp=T0 + 500)
            producer.produce("odd", b"only a value", timestamp=T0 + 100)
            producer.produce("odd", b"", b"", timestamp=T0 + 900)
            producer.produce("odd", bytes(range(256)) * 8000, timestamp=T0 + 200)
            producer.produce("odd", "grün ✓".encode(), headers=[("ü", b"\xff\x00")], timestamp=T0)

    def _groups(self) -> None:
        for name, offset in (("group-a", 7), ("group-b", 11), ("group-gone", 1)):
            consumer = make_consumer(self.server.bootstrap, **{"group.id": name})
            places = [TopicPartition("codec-zstd", 0, offset, metadata=f"words of {name}")]
            places.append(TopicPartition("large", 0, offset * 100))
            consumer.commit(offsets=places, asynchronous=False)
            consumer.close()
        _wait_all(self.admin.delete_consumer_groups(["group-gone"], request_timeout=30))

    def _offsets_in_transactions(self) -> None:
        for name, is_commit in (("group-yes", True), ("group-no", False)):
            producer = self._transactional(f"tx-{name}")
            consumer = make_consumer(self.server.bootstrap, **{"group.id": name})
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                [TopicPartition("tx", 1, 3)], consumer.consumer_group_metadata(), SECONDS
            )
            end = producer.commit_transaction if is_commit else producer.abort_transaction
            end(SECONDS)
            consumer.close()

    def _security(self) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        upsert = UserScramCredentialUpsertion("alice", info, b"alice-secret")
        _wait_all(self.admin.alter_user_scram_credentials([upsert]))
        rule = AclBinding(
            ResourceType.TOPIC, "large", ResourcePatternType.LITERAL, "User:alice", "*",
            AclOperation.READ, AclPermissionType.ALLOW,
        )  # fmt: skip
        _wait_all(self.admin.create_acls([rule]))

    def _config(self, topic: str, changes: dict[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                name,
                value or "",
                incremental_operation=AlterConfigOpType.SET if value else AlterConfigOpType.DELETE,
            )
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _wait_all(self.admin.incremental_alter_configs([resource]))

    def _delete_records(self, topic: str, offset: int) -> None:
        [deleted] = self.admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        low = deleted.result(SECONDS).low_watermark
        # Kafka itself forgets it by a crash, until this is written down.
        line = f"{topic} 0 {low}"
        wait_until(lambda: line in (self.server.data / LOG_STARTS).read_text().splitlines())


class _FlushedBlock:
    """A producer for a block; at its end all records are written."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = Producer(settings)

    def __enter__(self) -> _FlushedBlock:
        return self

    def __exit__(self, *_: object) -> None:
        left = self._producer.flush(SECONDS)
        if left:
            raise TimeoutError(f"{left} records were not written in {SECONDS:g} s")

    def produce(self, *args: Any, **settings: Any) -> None:
        """Send a record; wait a little while the queue is full."""
        while True:
            try:
                self._producer.produce(*args, **settings)
            except BufferError:
                self._producer.poll(0.1)
                continue
            self._producer.poll(0)
            return


def _wait_all(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(SECONDS)
