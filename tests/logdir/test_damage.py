"""Damage is named with file, position and offset, and the rest stays readable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.logdir.damage import Damage
from rookery.logdir.directory import LogDirectory
from rookery.logdir.partition import PartitionLog
from rookery.model.partition import TopicPartition
from rookery.testing.kafkadir import MadeDirectory
from rookery.testing.kafkasight import SeenRecord
from tests.cli.storage import run
from tests.logdir.conftest import Copy
from tests.logdir.views import view, visible

LARGE = TopicPartition("large", 0)


def opened(folder: Path) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open([folder])
    directory.check()
    return directory, directory.partitions[LARGE]


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for _, record in visible(log)]


def wanted(made: MadeDirectory) -> list[SeenRecord]:
    return made.stopped.topics["large"].partitions[0].records


def test_directory_written_by_kafka_has_no_damage(made: MadeDirectory) -> None:
    for seen in (made.killed, made.stopped):
        directory, _ = opened(seen.folder)
        assert [damage.text for damage in directory.damage] == []


def test_truncated_last_segment_is_torn_at_the_truncation(
    made: MadeDirectory, copied: Copy
) -> None:
    folder = copied(made.stopped)
    path = opened(folder)[1].segments[-1].path
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])

    directory, log = opened(folder)

    [damage] = directory.damage
    last = LogDirectory.open([made.stopped.folder]).partitions[LARGE].segments[-1]
    header = last.check()[-1]
    assert (damage.path, damage.position) == (path, header.position)
    assert (damage.offset, damage.is_torn) == (header.base_offset, True)
    assert f"{header.size - 7} of {header.size} bytes are there" in damage.reason
    assert log.log_end == header.base_offset
    assert offsets(log) == [
        record.offset for record in wanted(made) if record.offset < header.base_offset
    ]


@pytest.mark.parametrize("what", ["payload", "crc", "length"])
def test_flipped_byte_damages_one_batch(made: MadeDirectory, copied: Copy, what: str) -> None:
    folder = copied(made.stopped)
    segment = opened(folder)[1].segments[1]
    chosen = segment.check()[3]
    at = {"payload": chosen.size - 10, "crc": 18, "length": 9}[what]
    data = bytearray(segment.path.read_bytes())
    data[chosen.position + at] ^= 0x10
    segment.path.write_bytes(data)

    directory, log = opened(folder)

    [damage] = directory.damage
    assert (damage.path, damage.position, damage.offset) == (
        segment.path, chosen.position, chosen.base_offset,
    )  # fmt: skip
    assert not damage.is_torn
    assert damage.end_offset is not None
    read = offsets(log)
    assert read == [
        record.offset
        for record in wanted(made)
        if not chosen.base_offset <= record.offset < damage.end_offset
    ]
    if what != "length":  # then only the index has the next position
        assert damage.end_offset == chosen.last_offset + 1
    assert read[-1] == wanted(made)[-1].offset
    # A request for an offset after the damage gets it.
    assert log.read(damage.end_offset, 1)[:8] == damage.end_offset.to_bytes(8, "big")


def test_a_truncated_segment_before_the_last_is_damage(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    segment = opened(folder)[1].segments[1]
    header = segment.check()[-1]
    segment.path.write_bytes(segment.path.read_bytes()[:-7])

    directory, log = opened(folder)

    [damage] = directory.damage
    assert (damage.path, damage.position, damage.offset, damage.is_torn) == (
        segment.path, header.position, header.base_offset, False,
    )  # fmt: skip
    assert offsets(log) == [
        record.offset
        for record in wanted(made)
        if not header.base_offset <= record.offset <= header.last_offset
    ]


def test_missing_indexes_are_rebuilt_in_memory(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    intact = LogDirectory.open([folder]).partitions[LARGE]
    known = [(segment.positions, segment.times) for segment in intact.segments]
    for path in folder.glob("large-0/*index"):
        path.unlink()

    rebuilt = view(folder, made.stopped)
    directory, log = opened(folder)

    assert rebuilt.topics["large"] == made.stopped.topics["large"]
    assert [(segment.positions, segment.times) for segment in log.segments] == known
    assert sorted(damage.path.name for damage in log.damage) == sorted(
        f"{segment.base_offset:020}.{kind}"
        for segment in log.segments
        for kind in ("index", "timeindex")
    )
    assert all("the index is missing" in damage.reason for damage in directory.damage)


def test_wrong_indexes_are_ignored(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    for path in folder.glob("large-0/*index"):
        path.write_bytes(bytes.fromhex("00000001 00000123 00000002 00000777") * 3)

    assert offsets(opened(folder)[1]) == [record.offset for record in wanted(made)]
    log = opened(folder)[1]
    for record in wanted(made)[::500]:
        first = log.read(record.offset, 1)
        base = int.from_bytes(first[:8], "big")
        assert base <= record.offset


def test_incomplete_metadata_record_is_named(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    path = folder / "__cluster_metadata-0" / "00000000000000000000.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])

    directory, _ = opened(folder)

    [damage] = directory.damage
    assert damage.path == path
    assert damage.is_torn
    assert directory.image.next_offset == damage.offset
    assert set(directory.image.topics.by_name) > set(made.stopped.topics)


def test_damaged_metadata_batch_is_skipped(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    path = folder / "__cluster_metadata-0" / "00000000000000000000.log"
    for snapshot in path.parent.glob("*.checkpoint"):
        snapshot.unlink()
    data = bytearray(path.read_bytes())
    at = data.index(b"with.dots_and-dashes")
    data[at] ^= 1
    path.write_bytes(data)

    directory, _ = opened(folder)

    [damage] = [entry for entry in directory.damage if entry.path == path]
    assert damage.position is not None
    assert damage.position < at
    assert directory.image.brokers  # the records after it are there


def test_damaged_metadata_snapshot_is_named_and_an_older_one_used(
    made: MadeDirectory, copied: Copy
) -> None:
    folder = copied(made.stopped)
    directory = LogDirectory.open([folder])
    assert directory.metadata is not None
    assert directory.metadata.snapshot is not None
    path = directory.metadata.folder / directory.metadata.snapshot.text
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-9])

    again, _ = opened(folder)

    assert [entry.path for entry in again.damage] == [path]
    assert again.image.topics == directory.image.topics
    assert again.image.configs == directory.image.configs


@pytest.mark.parametrize(
    "name",
    [
        "meta.properties",
        "replication-offset-checkpoint",
        "large-0/leader-epoch-checkpoint",
        "large-0/partition.metadata",
    ],
)
def test_invalid_small_files_are_named(made: MadeDirectory, copied: Copy, name: str) -> None:
    folder = copied(made.stopped)
    (folder / name).write_bytes(b"\xff\xfe nonsense")

    directory, log = opened(folder)

    assert [damage.path for damage in directory.damage] == [folder / name]
    assert offsets(log) == [record.offset for record in wanted(made)]
    assert directory.topic_id("large") is not None


def test_inspect_reports_the_same_damage(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    segment = opened(folder)[1].segments[1]
    chosen = segment.check()[3]
    data = bytearray(segment.path.read_bytes())
    data[chosen.position + 100] ^= 1
    segment.path.write_bytes(data)

    done = run("inspect", str(folder), "--json", "--quiet")
    said: dict[str, Any] = json.loads(done.stdout)
    text = run("inspect", str(folder), "--quiet")

    assert (done.returncode, text.returncode) == (1, 1)
    [damage] = said["damage"]
    assert (damage["file"], damage["position"]) == (str(segment.path), chosen.position)
    assert (damage["offset"], damage["next_offset"]) == (
        chosen.base_offset,
        chosen.last_offset + 1,
    )
    line = Damage(segment.path, damage["what"], chosen.position, chosen.base_offset).text
    assert f"damaged: {line}" in text.stdout.decode()
