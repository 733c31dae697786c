"""Maintenance of a served directory: age, damage, crashes, several disks, Kafka's file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.broker.process.kafkafile import read_kafka_file
from rookery.broker.settings import BrokerSettings
from rookery.cli.main import main
from rookery.errors import ConfigError, ErrorCode
from rookery.logdir.directory import LogDirectory
from rookery.logdir.server.translate.javahash import partition_of
from rookery.records import batches
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.buffer import Buffer
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from tests.broker.raw import batch, bytes_of, raw
from tests.logdir.made import FIRST_LOG, make_directory, message_batch, topic_id


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[ServedBroker]:
    made = BrokerSettings(log_dir=str(folder), **{"durability": "os", **settings})
    with ServedBroker(folder.parent / "unused", made) as broker:
        yield broker


def create(broker: ServedBroker, name: str, **configs: str) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=30_000,
        validate_only=False,
    )
    [answer] = ask(broker.bootstrap, CREATE_TOPICS, 5, request).topics
    assert answer.error_code is ErrorCode.NONE


def logs(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


# Segments and retention.


async def test_segments_are_rolled_and_old_ones_deleted(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs")
    with serving(folder, upkeep_interval_ms=50) as broker:
        create(broker, "t", segment_bytes="1048576", retention_bytes="3000000")
        async with raw(broker) as client:
            for _ in range(8):
                answer = await client.produce("t", batch(os.urandom(600_000)))
                assert answer.error_code is ErrorCode.NONE
            # A segment holds one batch; what would leave less than the limit stays.
            wait_until(lambda: logs(folder / "t-0") == [3, 4, 5, 6, 7])
            partition = await client.fetch("t", 3)
            assert (partition.error_code, partition.log_start_offset) == (ErrorCode.NONE, 3)
            assert (await client.fetch("t", 2)).error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    for path in (folder / "t-0").glob("*.log"):
        [header] = batches.verify(path.read_bytes())
        assert header.base_offset == int(path.stem)


async def test_retention_by_age_deletes_the_last_segment(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs")
    with serving(folder, upkeep_interval_ms=50) as broker:
        create(broker, "t", retention_ms="1000")
        async with raw(broker) as client:
            await client.produce("t", batch(b"old", time_ms=1_700_000_000_000))
            wait_until(lambda: logs(folder / "t-0") == [1])
            answer = await client.produce("t", batch(b"old, too", time_ms=1_700_000_000_000))
            assert answer.base_offset == 1
    with serving(folder, read_only=True) as broker:
        async with raw(broker) as client:
            assert (await client.fetch("t", 1)).log_start_offset >= 1


# Damage.


async def test_flipped_byte_is_reported_and_the_rest_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_directory(tmp_path / "logs", {"bad": [[b"a", b"b", b"c"]], "good": [[b"d"]]})
    log = folder / "bad-0" / FIRST_LOG
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with serving(folder, read_only=True) as broker:
        async with raw(broker) as client:
            first = await client.fetch("bad", 0)
            assert b"a" in bytes_of(first)
            assert (await client.fetch("bad", 1)).error_code is ErrorCode.CORRUPT_MESSAGE
            assert b"c" in bytes_of(await client.fetch("bad", 2))
            assert b"d" in bytes_of(await client.fetch("good", 0))
    assert f"{log}" in caplog.text


async def test_interrupted_compaction_is_completed(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[b"a", b"b"]]})
    part, second = folder / "t-0", "00000000000000000002.log"
    later = [message_batch(b"c", 2), message_batch(b"d", 3)]
    # The cleaner has put "a" and "d" together, and one of both old segments is gone already.
    (part / f"{FIRST_LOG}.swap").write_bytes(message_batch(b"a", 0) + later[1])
    (part / f"{second}.deleted").write_bytes(b"".join(later))
    with serving(folder) as broker:
        async with raw(broker) as client:
            partition = await client.fetch("t", 0)
            headers = batches.verify(bytes_of(partition))
            assert [header.base_offset for header in headers] == [0, 3]
            assert (await client.produce("t", batch(b"e"))).base_offset == 4
    # The old segments keep their names for deleted ones until retention is confirmed.
    kept = [FIRST_LOG, f"{FIRST_LOG}.deleted", f"{second}.deleted"]
    assert sorted(path.name for path in part.glob("*.log*")) == kept


# Disks that fail, and processes that are killed.


async def test_partly_failed_write_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[]]})
    real, failures = os.pwritev, [3]

    def failing(fd: int, parts: Sequence[Buffer], position: int) -> int:
        if failures[0]:
            failures[0] -= 1
            # Some of it is written before the disk is full.
            os.pwrite(fd, memoryview(parts[0])[:30], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, parts, position)

    with serving(folder) as broker:
        async with raw(broker) as client:
            await client.produce("t", batch(b"before"))
            monkeypatch.setattr(os, "pwritev", failing)
            answer = await client.produce("t", batch(b"during"))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
            answer = await client.produce("t", batch(b"after"))
            assert answer.base_offset == 2
    assert failures == [0]
    headers = batches.verify((folder / "t-0" / FIRST_LOG).read_bytes())
    assert [header.base_offset for header in headers] == [0, 1, 2]


async def test_acknowledged_batches_survive_a_killed_process(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[]]})
    copy = tmp_path / "copy"
    with serving(folder, durability="disk") as broker:
        async with raw(broker) as client:
            for number in range(20):
                await client.produce("t", batch(b"%d" % number))
            # The files are now as a kill would leave them.
            shutil.copytree(folder, copy)
    assert not (copy / ".kafka_cleanshutdown").exists()
    (copy / ".lock").unlink()
    with serving(copy) as broker:
        async with raw(broker) as client:
            partition = await client.fetch("t", 0, max_bytes=1 << 20)
            assert partition.high_watermark == 20
            assert len(batches.verify(bytes_of(partition))) == 20
            assert (await client.produce("t", batch(b"on"))).base_offset == 20
    assert (copy / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'


# The disk of one broker out of several.


async def test_partition_stored_elsewhere_has_no_leader(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[b"here"], [b"there"]]}, elsewhere=[1])
    with serving(folder, read_only=True) as broker:
        answer = ask(broker.bootstrap, METADATA, 9, MetadataRequest(topics=None))
        assert [node.node_id for node in answer.brokers] == [1]
        parts = {part.partition_index: part for part in answer.topics[0].partitions}
        assert parts[0].leader_id == 1
        assert (parts[1].leader_id, parts[1].error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
        async with raw(broker) as client:
            assert b"here" in bytes_of(await client.fetch("t", 0))


async def test_records_above_the_high_watermark_are_not_served(tmp_path: Path) -> None:
    values = [b"agreed", b"agreed, too", b"not yet", b"nor this"]
    folder = make_directory(tmp_path / "logs", {"t": [values]}, replicas=[1, 2])
    (folder / "replication-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    before = (folder / "t-0" / FIRST_LOG).read_bytes()
    with serving(folder) as broker:
        async with raw(broker) as client:
            partition = await client.fetch("t", 0)
            assert (partition.high_watermark, len(batches.verify(bytes_of(partition)))) == (2, 2)
            # As long as no producer writes, they stay.
            assert (folder / "t-0" / FIRST_LOG).read_bytes() == before
            assert (await client.produce("t", batch(b"instead"))).base_offset == 2
    data = (folder / "t-0" / FIRST_LOG).read_bytes()
    assert [header.base_offset for header in batches.verify(data)] == [0, 1, 2]
    assert b"instead" in data
    assert b"not yet" not in data
    # The former file stays next to the log.
    [kept] = (folder / "t-0").glob("*.cut-*")
    assert b"not yet" in kept.read_bytes()
    assert LogDirectory.open([folder]).topic_id("t") == topic_id(1)


# Kafka's own file.


SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}
num.partitions=3
log.retention.hours=24
log.segment.bytes=2097152
offsets.retention.minutes=60
sasl.enabled.mechanisms=PLAIN
no.such.setting=1
"""


def test_server_properties_become_settings(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(SERVER.format(folder=tmp_path / "logs"))
    kafka_file = read_kafka_file(path)
    values = {".".join(given.setting.path): given.value for given in kafka_file.given}
    told = values.pop("advertise")
    assert values == {
        "log_dir": str(tmp_path / "logs"),
        "node_id": "1",
        "listen": "0.0.0.0:9092",
        "partitions": "3",
        "offsets_retention_ms": "3600000",
        "defaults": "log.retention.ms=86400000,log.segment.bytes=2097152",
    }
    assert str(told).endswith(":9092")
    assert "sasl.enabled.mechanisms" in kafka_file.warnings[0]
    assert "controller.quorum.voters" in kafka_file.warnings[1]
    assert "no.such.setting" in kafka_file.warnings[2]


def test_broker_accepts_server_properties(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(SERVER.format(folder=tmp_path / "logs"))
    assert main(["broker", str(path), "--print-config", "--listen", "127.0.0.1:1234"]) == 0
    shown = capsys.readouterr()
    assert f'log-dir = "{tmp_path / "logs"}"' in shown.out
    # What the command line says wins.
    assert 'listen = "127.0.0.1:1234"' in shown.out
    assert "no.such.setting" in shown.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node.id=1\n", "log.dirs is missing"),
        ("log.dirs=/x\nlisteners=SASL_SSL://:9092\n", "the listener SASL_SSL needs a certificate"),
    ],
)
def test_unsupported_server_properties_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_kafka_file(path)


def test_folder_that_is_not_a_log_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no directory"), serving(tmp_path / "missing"):
        pass
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="not a log directory"), serving(tmp_path / "empty"):
        pass


@pytest.mark.parametrize(
    # Where a real Kafka has put them; and the text whose hash is the lowest number there is.
    ("key", "count", "partition"),
    [("g1", 5, 2), ("t1", 5, 0), ("polygenelubricants", 50, 0)],
)
def test_group_hash_equals_that_of_kafka(key: str, count: int, partition: int) -> None:
    assert partition_of(key, count) == partition
