"""Records frames.json again: `python -m tests.golden.record`.

Starts a real Kafka whose advertised addresses are those of a relay, lets Kafka's own tools,
librdkafka (confluent-kafka), kafka-python and aiokafka do what clients do, and keeps a few of the
frames of each API, version and side. It takes some minutes and is not part of the tests: those
only read the file. kafka-python treats the broker as an older one several times, so that
older versions are used too.

A step that fails is reported and skipped: what must be in the file, tests/wire/test_golden.py
says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka as librdkafka
import confluent_kafka.admin as librdkafka_admin
import kafka as kafka_python
import kafka.admin as kafka_python_admin
import kafka.errors as kafka_errors
from kafka.protocol.admin import ElectionType

from rookery.testing.jars import VERSION
from rookery.testing.java import Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.properties import PLAINTEXT, KafkaSettings
from tests.golden.recorder import Recorder, relay

FILE = Path(__file__).parent / "frames.json"
SASL = "SASL_PLAINTEXT"
USERS = {"alice": "alice-secret", "admin": "admin-secret"}
TOPIC, SOURCE, COPY = "golden", "golden-source", "golden-copy"
OLDER = (
    *((0, 11), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5), (2, 6), (2, 7)),
    *((2, 8), (3, 0), (3, 1), (3, 3), (3, 5), (3, 6), (3, 7), (3, 8), (3, 9), (4, 0), (4, 1)),
)
TIMEOUT = 20.0
JAVA = f"Apache Kafka {VERSION} tools"
LIBRDKAFKA = f"librdkafka {librdkafka.libversion()[0]}"
KAFKA_PYTHON = f"kafka-python {version('kafka-python')}"
AIOKAFKA = f"aiokafka {version('aiokafka')}"

_LOG = logging.getLogger("record")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the relay is, and what Java's programs need."""

    plain: str
    sasl: str
    java: Java
    folder: Path

    def tool(self, name: str, *args: str, text: str | None = None) -> str:
        """Run one of Kafka's tools on the plain listener."""
        return _output(
            self.java.tool(name, "--bootstrap-server", self.plain, *args, text=text, timeout=60)
        )

    def main(self, name: str, *args: str) -> str:
        """Run a Java class that Kafka has no script for."""
        command = self.java.command(f"org.apache.kafka.tools.{name}", *args)
        return _output(
            subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        )

    def file(self, name: str, text: str) -> str:
        """Write a file for a tool to read; return its path."""
        path = self.folder / name
        path.write_text(text, "utf-8")
        return str(path)


def _output(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-600:])
    return done.stdout


def attempt(name: str, step: Callable[[], object]) -> None:
    """Do one step; tell if it failed."""
    try:
        step()
    except kafka_errors.IncompatibleBrokerVersion as error:
        _LOG.info("%s is not for so old a broker: %s", name, error)
    except Exception as error:  # noqa: BLE001 (whatever a client raises, the others continue)
        _LOG.warning("%s failed: %s: %s", name, type(error).__name__, error)


# Kafka's own tools, and their arguments besides the address.
TOPIC_TOOLS = f"""
    kafka-topics --create --topic {TOPIC} --partitions 2 --config retention.ms=86400000
    kafka-topics --create --topic {SOURCE} --partitions 1
    kafka-topics --create --topic {COPY} --partitions 1 --replication-factor 1
    kafka-console-producer --topic {SOURCE}
    kafka-topics --create --topic golden-gone --replica-assignment 1,1
    kafka-topics --alter --topic golden-gone --partitions 3
    kafka-topics --list
    kafka-topics --describe --topic {TOPIC}
    kafka-topics --delete --topic golden-gone
    kafka-broker-api-versions
    kafka-console-producer --topic {TOPIC} --command-property compression.type=zstd
    kafka-console-producer --topic {TOPIC} --command-property acks=0 --command-property \
        enable.idempotence=false
    kafka-verifiable-producer --topic {TOPIC} --max-messages 20
    kafka-producer-perf-test --topic {TOPIC} --num-records 20 --record-size 50 --throughput -1
    kafka-producer-perf-test --topic {TOPIC} --num-records 20 --record-size 50 --throughput -1 \
        --transactional-id perf --transaction-duration-ms 100
"""
# The classic group comes a second time, from the committed offset, whose leader epoch it asks
# after, and stays until it has sent heartbeats.
GROUP_TOOLS = f"""
    kafka-console-consumer --topic {TOPIC} --group java-classic --from-beginning --max-messages \
        10 --command-property isolation.level=read_committed
    kafka-console-consumer --topic {TOPIC} --group java-classic --timeout-ms 2000 \
        --command-property heartbeat.interval.ms=200
    kafka-console-consumer --topic {TOPIC} --group java-new --from-beginning --max-messages 10 \
        --command-property group.protocol=consumer
    kafka-verifiable-consumer --topic {TOPIC} --group-id java-static --group-instance-id one \
        --max-messages 5 --reset-policy earliest
    kafka-console-share-consumer --topic {TOPIC} --group java-share --max-messages 3 \
        --timeout-ms 8000
    kafka-consumer-groups --list --state
    kafka-consumer-groups --describe --group java-classic
    kafka-consumer-groups --describe --group java-new --members --verbose
    kafka-consumer-groups --describe --all-groups --state
    kafka-consumer-groups --reset-offsets --group java-classic --topic {TOPIC} --to-earliest \
        --execute
    kafka-consumer-groups --delete-offsets --group java-classic --topic {TOPIC}
    kafka-consumer-groups --delete --group java-classic
    kafka-groups --list
    kafka-share-groups --list
    kafka-share-groups --describe --group java-share
    kafka-share-groups --describe --group java-share --members
    kafka-share-groups --reset-offsets --group java-share --topic {TOPIC} --to-earliest \
        --execute
    kafka-share-groups --delete-offsets --group java-share --topic {TOPIC}
    kafka-share-groups --delete --group java-share
    kafka-streams-groups --list
    kafka-streams-groups --describe --group java-streams
"""
ADMIN_TOOLS = f"""
    kafka-configs --alter --entity-type topics --entity-name {TOPIC} --add-config \
        max.message.bytes=1000000
    kafka-configs --describe --entity-type topics --entity-name {TOPIC}
    kafka-configs --alter --entity-type users --entity-name bob --add-config \
        SCRAM-SHA-256=[iterations=4096,password=bob-secret]
    kafka-configs --alter --entity-type users --entity-name bob --add-config \
        consumer_byte_rate=1000000
    kafka-configs --describe --entity-type users --entity-name bob
    kafka-client-metrics --alter --name clients --interval 1000 --metrics org.apache.kafka
    kafka-client-metrics --describe
    kafka-acls --add --allow-principal User:bob --operation Read --topic {COPY}
    kafka-acls --list --topic {COPY}
    kafka-acls --remove --force --allow-principal User:bob --operation Read --topic {COPY}
    kafka-get-offsets --topic {TOPIC}
    kafka-get-offsets --topic {TOPIC} --time earliest
    kafka-log-dirs --describe --topic-list {TOPIC}
    kafka-metadata-quorum describe --status
    kafka-metadata-quorum describe --replication
    kafka-features describe
    kafka-features upgrade --feature group.version=1 --dry-run
    kafka-features downgrade --feature group.version=0 --dry-run
    kafka-transactions list
    kafka-transactions describe --transactional-id perf
    kafka-transactions describe-producers --topic {TOPIC} --partition 0
    kafka-transactions find-hanging --broker-id 1
    kafka-leader-election --election-type preferred --all-topic-partitions
    kafka-metadata-quorum remove-controller --controller-id 9 --controller-directory-id \
        AAAAAAAAAAAAAAAAAAAACQ
    kafka-e2e-latency --topic {COPY} --num-records 10 --producer-acks all --record-size 20
"""
EPOCH_TOOLS = f"""
    kafka-console-consumer --topic {TOPIC} --group java-epoch --from-beginning --timeout-ms 2000
    kafka-console-consumer --topic {TOPIC} --group java-epoch-new --from-beginning \
        --timeout-ms 2000 --command-property group.protocol=consumer
"""
LINES = "".join(f"line {number}\n" for number in range(10))


def java_tools(place: Place) -> None:
    """Let Kafka's own tools work."""
    lines = (TOPIC_TOOLS + GROUP_TOOLS + ADMIN_TOOLS).splitlines()
    for line in filter(str.strip, lines):
        name, *args = line.split()
        attempt(line, partial(place.tool, name, *args, text=LINES))
    attempt("cluster", lambda: _java_cluster(place))
    attempt("copier", lambda: _java_copier(place))
    attempt("files", lambda: _java_with_files(place))
    attempt("tokens", lambda: _java_tokens(place))


def _java_cluster(place: Place) -> None:
    # The one tool that wants its command before the address. No broker has the id 9.
    for command in ("cluster-id", "list-endpoints", "unregister --id 9"):
        name, *args = command.split()
        place.java.tool("kafka-cluster", name, "--bootstrap-server", place.plain, *args)


def _java_copier(place: Place) -> None:
    for aborts in ((), ("--enable-random-aborts",)):
        place.main(
            *("TransactionalMessageCopier", "--broker-list", place.plain),
            *("--input-topic", SOURCE, "--input-partition", "0", "--output-topic", COPY),
            *("--max-messages", "10", "--transaction-size", "3", "--use-group-metadata"),
            *("--transactional-id", f"copier{len(aborts)}"),
            *("--consumer-group", f"copier{len(aborts)}", *aborts),
        )


def _java_with_files(place: Place) -> None:
    where = {"topic": TOPIC, "partition": 0}
    records = place.file(
        "records.json", json.dumps({"partitions": [where | {"offset": 1}], "version": 1})
    )
    moves = place.file(
        "moves.json", json.dumps({"partitions": [where | {"replicas": [1]}], "version": 1})
    )
    place.tool("kafka-delete-records", "--offset-json-file", records)
    place.tool("kafka-reassign-partitions", "--reassignment-json-file", moves, "--execute")
    place.tool("kafka-reassign-partitions", "--reassignment-json-file", moves, "--verify")
    place.tool("kafka-reassign-partitions", "--list")


def _java_tokens(place: Place) -> None:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    settings = place.file(
        "client.properties",
        f"security.protocol={SASL}\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={login} username="alice" password="alice-secret";\n',
    )
    start = ("--bootstrap-server", place.sasl, "--command-config", settings)

    def run(*args: str) -> str:
        return _output(place.java.tool("kafka-delegation-tokens", *start, *args))

    made = run("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:admin")
    hmac = next(word for word in made.split() if len(word) > 80)
    run("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    run("--describe")
    run("--expire", "--expiry-time-period", "-1", "--hmac", hmac)


def librdkafka_clients(place: Place) -> None:
    """Let confluent-kafka produce, consume in all kinds of groups, and administer."""
    plain = {"bootstrap.servers": place.plain}
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        login = {
            "bootstrap.servers": place.sasl,
            "security.protocol": SASL,
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
        }
        attempt(mechanism, partial(_rd_produce, login))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = plain | {"compression.type": codec, "enable.idempotence": codec == "lz4"}
        # kafka-python, which reads the other topic, has no snappy of its own.
        attempt(codec, partial(_rd_produce, settings, COPY if codec == "snappy" else TOPIC))
    attempt("no acks", lambda: _rd_produce(plain | {"acks": 0}))
    static = {"group.instance.id": "one"}
    beating = {"heartbeat.interval.ms": 200}
    for name in ("classic", "classic again"):  # the second one begins at a committed offset
        attempt(name, lambda: _rd_consume(plain, "rd-classic", beating))
    attempt("static", lambda: _rd_consume(plain, "rd-static", static))
    sticky = {"partition.assignment.strategy": "cooperative-sticky"}
    attempt("cooperative", lambda: _rd_consume(plain, "rd-sticky", sticky))
    attempt("new", lambda: _rd_consume(plain, "rd-new", {"group.protocol": "consumer"}))
    attempt("share", lambda: _rd_share(plain))
    attempt("transactions", lambda: _rd_transactions(plain))
    _rd_admin(place.plain)


def _rd_produce(settings: dict[str, Any], topic: str = TOPIC) -> None:
    producer = librdkafka.Producer({"linger.ms": 50} | settings)
    for number in range(5):
        headers: list[tuple[str, str | bytes | None]] = [("n", str(number)), ("none", None)]
        producer.produce(topic, f"value {number} " * 4, f"key {number}", headers=headers)
    producer.produce(topic, None, "tombstone")
    if producer.flush(TIMEOUT):
        raise TimeoutError("not all were delivered")


def _rd_consume(plain: dict[str, Any], group: str, settings: dict[str, Any]) -> None:
    consumer = librdkafka.Consumer(
        plain
        | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        | settings
    )
    consumer.subscribe([TOPIC])
    if not consumer.consume(5, TIMEOUT):
        raise TimeoutError("nothing came")
    consumer.commit(asynchronous=False)
    assignment = consumer.assignment()
    consumer.committed(assignment, TIMEOUT)
    consumer.get_watermark_offsets(assignment[0], TIMEOUT)
    consumer.offsets_for_times(
        [librdkafka.TopicPartition(part.topic, part.partition, 1) for part in assignment], TIMEOUT
    )
    consumer.unsubscribe()
    consumer.close()


def _rd_share(plain: dict[str, Any]) -> None:
    consumer = librdkafka.ShareConsumer(plain | {"group.id": "rd-share"})
    consumer.subscribe([TOPIC])
    for _ in range(10):
        _rd_produce(plain)
        if consumer.poll(1.0):
            break
    consumer.close()


def _rd_transactions(plain: dict[str, Any]) -> None:
    source = librdkafka.Consumer(plain | {"group.id": "rd-txn", "auto.offset.reset": "earliest"})
    source.subscribe([TOPIC])
    producer = librdkafka.Producer(plain | {"transactional.id": "rd-txn"})
    producer.init_transactions(TIMEOUT)
    for end in (producer.commit_transaction, producer.abort_transaction):
        source.consume(3, TIMEOUT)
        producer.begin_transaction()
        producer.produce(COPY, f"{end}")
        positions = source.position(source.assignment())
        producer.send_offsets_to_transaction(positions, source.consumer_group_metadata(), TIMEOUT)
        producer.flush(TIMEOUT)
        end(TIMEOUT)
    source.close()


def _rd_admin(bootstrap: str) -> None:
    admin = librdkafka_admin.AdminClient({"bootstrap.servers": bootstrap})
    new: Any = librdkafka_admin  # its names are imported there and not exported
    part = librdkafka.TopicPartition(TOPIC, 0)
    topic = new.ConfigResource(new.ResourceType.TOPIC, TOPIC)
    changed = new.ConfigResource(
        new.ResourceType.TOPIC,
        TOPIC,
        incremental_configs=[
            new.ConfigEntry(
                "retention.ms", "7200000", incremental_operation=new.AlterConfigOpType.SET
            )
        ],
    )
    kind, pattern = new.ResourceType.TOPIC, new.ResourcePatternType.LITERAL
    anything = (new.AclOperation.READ, new.AclPermissionType.ALLOW)
    rule = new.AclBinding(kind, "rd", pattern, "User:rd", "*", *anything)
    rules = new.AclBindingFilter(kind, "rd", pattern, None, None, *anything)
    scram = new.ScramCredentialInfo(new.ScramMechanism.SCRAM_SHA_256, 4096)
    upsert = new.UserScramCredentialUpsertion("rd", scram, b"rd-secret", b"salt")
    latest = {part: new.OffsetSpec.latest()}
    offsets = librdkafka.ConsumerGroupTopicPartitions("rd-classic", [part])
    moved = librdkafka.ConsumerGroupTopicPartitions(
        "rd-classic", [librdkafka.TopicPartition(TOPIC, 0, 2)]
    )
    steps: dict[str, Callable[[], Any]] = {
        "create": lambda: admin.create_topics([new.NewTopic("rd", 2, 1)])["rd"],
        "grow": lambda: admin.create_partitions([new.NewPartitions("rd", 3)])["rd"],
        "metadata": lambda: admin.list_topics(timeout=TIMEOUT),
        "describe": lambda: admin.describe_topics(librdkafka.TopicCollection(["rd"]))["rd"],
        "cluster": lambda: admin.describe_cluster(include_authorized_operations=True),
        "configs": lambda: admin.describe_configs([topic])[topic],
        "alter": lambda: admin.incremental_alter_configs([changed])[changed],
        "old alter": lambda: admin.alter_configs([topic])[topic],
        "acls": lambda: admin.create_acls([rule])[rule],
        "list acls": lambda: admin.describe_acls(rules),
        "delete acls": lambda: admin.delete_acls([rules])[rules],
        "scram": lambda: admin.alter_user_scram_credentials([upsert])["rd"],
        "list scram": admin.describe_user_scram_credentials,
        "offsets": lambda: admin.list_offsets(latest)[part],
        "groups": admin.list_consumer_groups,
        "describe groups": lambda: admin.describe_consumer_groups(["rd-classic"])["rd-classic"],
        "describe new": lambda: admin.describe_consumer_groups(["rd-new"])["rd-new"],
        "group offsets": lambda: admin.list_consumer_group_offsets([offsets])["rd-classic"],
        "alter offsets": lambda: admin.alter_consumer_group_offsets([moved])["rd-classic"],
        "delete groups": lambda: admin.delete_consumer_groups(["rd-classic"])["rd-classic"],
        "elect": lambda: admin.elect_leaders(librdkafka.ElectionType.PREFERRED, [part]),
        "delete records": lambda: admin.delete_records([librdkafka.TopicPartition(TOPIC, 0, 2)])[
            librdkafka.TopicPartition(TOPIC, 0, 2)
        ],
        "delete": lambda: admin.delete_topics(["rd"])["rd"],
    }
    for name, step in steps.items():
        attempt(f"admin {name}", partial(_wait, step))


def _wait(step: Callable[[], Any]) -> None:
    made = step()
    if hasattr(made, "result"):
        made.result(TIMEOUT)


def kafka_python_clients(place: Place) -> None:
    """Let kafka-python do the same, as with this broker and as with older ones."""
    for api_version in (None, *OLDER):
        tag = "py" + "".join(map(str, api_version or ()))
        settings = {"bootstrap_servers": place.plain, "api_version": api_version}
        login = settings | {
            "bootstrap_servers": place.sasl,
            "security_protocol": SASL,
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": USERS["alice"],
        }
        for step in (_py_produce, _py_consume, _py_transactions, _py_admin):
            attempt(f"{tag} {step.__name__}", partial(step, settings, tag))
        if api_version != (0, 11):  # which logged in with bare tokens, not with requests
            attempt(f"{tag} login", partial(_py_produce, login, tag))


def _py_produce(settings: dict[str, Any], tag: str) -> None:
    # Another codec with each version; zstd is for brokers since 2.1 only.
    codec = ("gzip", "lz4", "zstd")[sum(settings["api_version"] or (2,)) % 3]
    if codec == "zstd" and settings["api_version"] in OLDER[:4]:
        codec = "lz4"
    for more in ({"acks": 1, "enable_idempotence": False}, {"compression_type": codec}):
        producer = kafka_python.KafkaProducer(**settings, **more)
        for number in range(3):
            producer.send(TOPIC, f"{tag} {number}".encode(), key=b"k", headers=[("h", b"v")])
        producer.flush(TIMEOUT)
        producer.close()


def _py_consume(settings: dict[str, Any], tag: str) -> None:
    for _ in range(2):  # the second one begins at a committed offset
        consumer = kafka_python.KafkaConsumer(
            TOPIC,
            group_id=tag,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            max_partition_fetch_bytes=500,
            **settings,
        )
        while not consumer.poll(1000, max_records=5):
            pass
        consumer.commit()
        parts = list(consumer.assignment())
        consumer.committed(parts[0])
        consumer.end_offsets(parts)
        consumer.offsets_for_times(dict.fromkeys(parts, 1))
        consumer.seek_to_end()
        consumer.poll(600)  # nothing comes, and its heart beats
        consumer.close()


def _py_transactions(settings: dict[str, Any], tag: str) -> None:
    producer = kafka_python.KafkaProducer(transactional_id=tag, **settings)
    producer.init_transactions()
    part = kafka_python.TopicPartition(TOPIC, 0)
    offsets = {part: kafka_python.OffsetAndMetadata(3, "", -1)}
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.send(COPY, tag.encode())
        producer.send_offsets_to_transaction(offsets, f"{tag}-txn")
        end()
    producer.close()


def _py_admin(settings: dict[str, Any], tag: str) -> None:
    admin = kafka_python_admin.KafkaAdminClient(**settings)
    new = kafka_python_admin
    part = kafka_python.TopicPartition(TOPIC, 0)
    topic = new.ConfigResource("topic", tag, {"retention.ms": "7200000"})
    pattern = new.ResourcePattern(new.ResourceType.TOPIC, tag)
    who = (f"User:{tag}", "*", new.ACLOperation.READ, new.ACLPermissionType.ALLOW)
    scram = new.UserScramCredentialUpsertion(tag, "SCRAM-SHA-256", "secret")
    steps: dict[str, Callable[[], object]] = {
        "create": lambda: admin.create_topics([new.NewTopic(tag, 2, 1)]),
        "grow": lambda: admin.create_partitions({tag: new.NewPartitions(3)}),
        "describe": lambda: admin.describe_topics([tag]),
        "partitions": lambda: admin.describe_topic_partitions([tag]),
        "cluster": admin.describe_cluster,
        "logs": admin.describe_log_dirs,
        "quorum": admin.describe_metadata_quorum,
        "features": admin.describe_features,
        "configs": lambda: admin.describe_configs([topic]),
        "alter": lambda: admin.alter_configs([topic]),
        "old alter": lambda: admin.alter_configs([topic], incremental=False),
        "resources": admin.list_config_resources,
        "acls": lambda: admin.create_acls([new.ACL(*who, pattern)]),
        "list acls": lambda: admin.describe_acls(new.ACLFilter(*who, pattern)),
        "delete acls": lambda: admin.delete_acls([new.ACLFilter(*who, pattern)]),
        "scram": lambda: admin.alter_user_scram_credentials([scram]),
        "list scram": admin.describe_user_scram_credentials,
        "groups": admin.list_groups,
        "describe groups": lambda: admin.describe_groups([tag], include_authorized_operations=True),
        "group offsets": lambda: admin.list_group_offsets({tag: [part]}),
        "delete offsets": lambda: admin.delete_group_offsets(tag, [part]),
        "delete groups": lambda: admin.delete_groups([tag]),
        "offsets": lambda: admin.list_partition_offsets({part: new.OffsetSpec.LATEST}),
        "delete records": lambda: admin.delete_records({part: 2}),
        "elect": lambda: admin.elect_leaders(ElectionType.PREFERRED, {TOPIC: [0]}),
        "reassign": lambda: admin.alter_partition_reassignments({part: [1]}),
        "reassigned": admin.list_partition_reassignments,
        "log dir": lambda: admin.alter_replica_log_dirs({(TOPIC, 0, 1): "/nowhere"}),
        "transactions": admin.list_transactions,
        "describe transactions": lambda: admin.describe_transactions([tag]),
        "producers": lambda: admin.describe_producers([part]),
        "delete": lambda: admin.delete_topics([tag]),
    }
    for name, step in steps.items():
        attempt(f"{tag} {name}", step)
    admin.close()


async def aiokafka_clients(place: Place) -> None:
    """Let aiokafka produce, consume, transact and administer."""
    for step in (_aio_produce, _aio_consume, _aio_transactions, _aio_admin, _aio_login):
        try:
            await asyncio.wait_for(step(place), 60)
        except Exception as error:  # noqa: BLE001 (whatever a client raises, the others continue)
            _LOG.warning("%s failed: %s: %s", step.__name__, type(error).__name__, error)


async def _aio_produce(place: Place) -> None:
    for more in ({"acks": 1}, {"enable_idempotence": True}, {"compression_type": "lz4"}):
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=place.plain, **more) as producer:
            await producer.send_and_wait(TOPIC, b"value", b"key", headers=[("h", b"v")])


async def _aio_consume(place: Place) -> None:
    async with aiokafka.AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=place.plain,
        group_id="aio",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        max_partition_fetch_bytes=500,
    ) as consumer:
        await consumer.getone()
        await consumer.commit()
        parts = list(consumer.assignment())
        await consumer.committed(parts[0])
        await consumer.end_offsets(parts)
        await consumer.seek_to_end()
        await consumer.getmany(timeout_ms=1000)  # nothing comes, and its heart beats


async def _aio_transactions(place: Place) -> None:
    part = aiokafka.TopicPartition(TOPIC, 0)
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=place.plain, transactional_id="aio"
    ) as producer:
        async with producer.transaction():
            await producer.send_and_wait(COPY, b"committed")
            await producer.send_offsets_to_transaction({part: 3}, "aio-txn")
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"aborted")
        await producer.abort_transaction()


async def _aio_admin(place: Place) -> None:
    new = aiokafka.admin
    admin = new.AIOKafkaAdminClient(bootstrap_servers=place.plain)
    await admin.start()
    topic = new.config_resource.ConfigResource(
        new.config_resource.ConfigResourceType.TOPIC, "aio", {"retention.ms": "7200000"}
    )
    await admin.create_topics([new.NewTopic("aio", 1, 1)])
    await admin.create_partitions({"aio": new.NewPartitions(2)})
    await admin.describe_topics(["aio"])
    await admin.describe_cluster()
    await admin.describe_configs([topic])
    await admin.alter_configs([topic])
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups(["aio"])
    await admin.list_consumer_group_offsets("aio")
    await admin.delete_records(
        {aiokafka.TopicPartition(TOPIC, 1): new.RecordsToDelete(before_offset=1)}
    )
    await admin.delete_topics(["aio"])
    await admin.close()


async def _aio_login(place: Place) -> None:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=place.sasl,
        security_protocol=SASL,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password=USERS["alice"],
    ) as producer:
        await producer.send_and_wait(TOPIC, b"logged in")


def come_back(place: Place, recorder: Recorder) -> None:
    """Continue from offsets of an older leader epoch, about which clients then ask."""
    recorder.client = JAVA
    for line in filter(str.strip, EPOCH_TOOLS.splitlines()):
        name, *args = line.split()
        attempt(line, partial(place.tool, name, *args))
    recorder.client = LIBRDKAFKA
    plain = {"bootstrap.servers": place.plain}
    attempt("epoch", lambda: _rd_consume(plain, "rd-sticky", {}))
    recorder.client = KAFKA_PYTHON
    for api_version in (None, (2, 3), (2, 8)):
        settings = {"bootstrap_servers": place.plain, "api_version": api_version}
        attempt("epoch", partial(_py_consume, settings, f"epoch{api_version}"))


async def work(place: Place, recorder: Recorder, server: KafkaServer) -> None:
    """Let all clients work, one kind after the other, and again after a change of leader epoch."""
    recorder.client = JAVA
    await asyncio.to_thread(java_tools, place)
    recorder.client = LIBRDKAFKA
    await asyncio.to_thread(librdkafka_clients, place)
    recorder.client = KAFKA_PYTHON
    await asyncio.to_thread(kafka_python_clients, place)
    recorder.client = AIOKAFKA
    await aiokafka_clients(place)
    await asyncio.to_thread(come_back, place, recorder)
    await asyncio.to_thread(server.restart)
    await asyncio.to_thread(come_back, place, recorder)


async def main() -> None:
    """Start Kafka and the relay, record, write the file."""
    ports = {PLAINTEXT: free_port(), SASL: free_port()}
    ends = (f"{listener}://{HOST}:{port}" for listener, port in ports.items())
    settings = KafkaSettings(
        listeners=(PLAINTEXT, SASL),
        users=USERS,
        properties={
            "advertised.listeners": ",".join(ends),
            "delegation.token.secret.key": "a key for tests",
        },
    )
    java = Java.find()
    recorder = Recorder(f"Apache Kafka {VERSION} broker")
    server = KafkaServer(settings, java=java)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(f"{HOST}:{ports[PLAINTEXT]}", f"{HOST}:{ports[SASL]}", java, Path(folder))
        async with (
            relay(recorder, ports[PLAINTEXT], server.port()),
            relay(recorder, ports[SASL], server.port(SASL)),
        ):
            await asyncio.to_thread(server.start)
            try:
                await work(place, recorder, server)
            finally:
                await asyncio.to_thread(server.close)
    recorder.write(FILE)
    _LOG.warning("%s: %d bytes", FILE, FILE.stat().st_size)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(name)s %(message)s")
    _LOG.setLevel(logging.WARNING)
    asyncio.run(main())
