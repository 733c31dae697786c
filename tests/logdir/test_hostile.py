"""Arbitrary bytes in a directory: it can be opened, and damage is named."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.formats.logfile.checkpoints import LoggedEpoch
from rookery.formats.logfile.names import META_PROPERTIES
from rookery.logdir.directory import LogDirectory
from rookery.logdir.exporter.logs import PartitionExporter
from rookery.logdir.exporter.quorum import write_metadata
from rookery.logdir.inspection import inspect
from rookery.logdir.internal import read_groups, read_transactions
from rookery.model.address import Address
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.wire.coordinator.catalog import CONSUMER_OFFSETS
from rookery.wire.coordinator.offsets import OffsetCommitKey, OffsetCommitValue
from rookery.wire.kraft.topics import PartitionRecord, TopicRecord
from rookery.wire.message import Message

TOPIC_ID, OFFSETS_ID, DIRECTORY_ID = b"t" * 16, b"o" * 16, b"d" * 16


def batch(base: int, key: bytes | None, value: bytes) -> bytes:
    settings_ = BatchSettings(
        base_offset=base, partition_leader_epoch=0, producer_id=3, producer_epoch=0,
        base_sequence=base, is_transactional=base % 2 == 0,
    )  # fmt: skip
    return build([Record(key, value, (), 1000 + base)], settings_)


def topic(name: str, topic_id: bytes) -> list[Message]:
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], removing_replicas=[],
        adding_replicas=[], leader=1, leader_epoch=0, partition_epoch=0,
        directories=[DIRECTORY_ID],
    )  # fmt: skip
    return [TopicRecord(name=name, topic_id=topic_id), partition]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a topic, a group and metadata, each of a few batches."""
    folder = tmp_path_factory.mktemp("small") / "data"
    log = PartitionExporter(folder / "t-0", 0, segment_bytes=30_000)
    for base in range(40):
        log.write(batch(base, None, b"x" * 2000))
    log.finish(TOPIC_ID, [LoggedEpoch(0, 0)], 40)
    key = CONSUMER_OFFSETS.write_key(OffsetCommitKey(group="g", topic="t", partition=0))
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=9)
    offsets = PartitionExporter(folder / "__consumer_offsets-0", 0)
    offsets.write(batch(1, key, CONSUMER_OFFSETS.write_value(value, 3)))
    offsets.finish(OFFSETS_ID, [LoggedEpoch(0, 0)], 2)
    messages = [*topic("t", TOPIC_ID), *topic("__consumer_offsets", OFFSETS_ID)]
    write_metadata(folder, 1, DIRECTORY_ID, Address("h", 1), messages, 0)
    (folder / META_PROPERTIES).write_text("node.id=1\nversion=1\ncluster.id=c\n")
    (folder / "replication-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    return folder


def look(folder: Path) -> LogDirectory:
    """Do all that a reader does."""
    directory = LogDirectory.open([folder])
    list(inspect(directory))
    read_groups(directory)
    read_transactions(directory)
    for log in directory.partitions.values():
        log.offset_for_time(1020)
        log.read(7, 1000)
    for damage in directory.damage:
        assert damage.text.startswith(str(damage.path))
    return directory


def test_unmodified_directory_is_valid(small: Path) -> None:
    directory = look(small)
    assert directory.damage == []
    assert list(read_groups(directory).by_name) == ["g"]
    assert [len(log.segments) for log in directory.partitions.values()] == [1, 3]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_file_contents_are_handled(small: Path, tmp_path: Path, data: st.DataObject) -> None:
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(small, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3)):
        path.write_bytes(changed(path.read_bytes(), data))
    # Two files may contradict each other about whose directory it is.
    with suppress(ConfigError):
        look(copy)


def changed(whole: bytes, data: st.DataObject) -> bytes:
    """Cut, flip, fill or grow some bytes."""
    at = data.draw(st.integers(0, max(len(whole) - 1, 0)))
    match data.draw(st.sampled_from(["cut", "flip", "zero", "grow", "noise"])):
        case "cut":
            return whole[:at]
        case "flip" if whole:
            flipped = bytearray(whole)
            flipped[at] ^= data.draw(st.integers(1, 255))
            return bytes(flipped)
        case "zero":
            size = data.draw(st.integers(1, 200))
            return whole[:at] + bytes(size) + whole[at + size :]
        case "grow":
            return whole + data.draw(st.binary(max_size=100))
        case _:
            return whole[:at] + data.draw(st.binary(min_size=1, max_size=80)) + whole[at:]
