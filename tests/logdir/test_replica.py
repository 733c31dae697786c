"""The disk of one broker out of several: it ends where the high watermark was noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.formats.kraft.entries import pack_batch, version_for
from rookery.formats.logfile.checkpoints import format_offsets, parse_offsets
from rookery.formats.logfile.names import HIGH_WATERMARKS
from rookery.logdir.directory import LogDirectory
from rookery.model.partition import TopicPartition
from rookery.testing.kafkadir import MadeDirectory
from rookery.wire.kraft.topics import PartitionChangeRecord, RemoveTopicRecord
from rookery.wire.message import Message
from tests.cli.storage import run
from tests.logdir.conftest import Copy

LARGE = TopicPartition("large", 0)


def decide(folder: Path, *messages: Message) -> None:
    """Append records to the metadata log, as its controller would."""
    directory = LogDirectory.open([folder])
    assert directory.metadata is not None
    image = directory.image
    rows = [(message, version_for(message, image.metadata_version)) for message in messages]
    with directory.metadata.log.segments[-1].path.open("ab") as file:
        file.write(pack_batch(rows, image.next_offset, image.epoch, 0))


def note(folder: Path, offset: int) -> None:
    path = folder / HIGH_WATERMARKS
    offsets = parse_offsets(path.read_text(), str(path))
    path.write_text(format_offsets(offsets | {LARGE: offset}))


@pytest.fixture
def shared(made: MadeDirectory, copied: Copy) -> Path:
    """A directory whose topic `large` has a second replica elsewhere that is in sync."""
    folder = copied(made.stopped)
    topic_id = LogDirectory.open([folder]).topic_id("large")
    assert topic_id is not None
    decide(
        folder,
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2], isr=[1, 2]),
    )
    return folder


def test_records_above_the_high_watermark_are_hidden(made: MadeDirectory, shared: Path) -> None:
    note(shared, 500)
    log = LogDirectory.open([shared]).partitions[LARGE]

    end = made.stopped.topics["large"].partitions[0].high
    assert (log.high_watermark, log.log_end) == (500, end)
    assert all(batch.header.base_offset < 500 for batch in log.batches())
    assert log.offset_for_time(1 << 50) is None


def test_high_watermark_beyond_the_end_is_the_end(made: MadeDirectory, shared: Path) -> None:
    note(shared, 1 << 40)
    log = LogDirectory.open([shared]).partitions[LARGE]

    assert log.high_watermark == made.stopped.topics["large"].partitions[0].high


def test_single_replica_needs_no_high_watermark(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    (folder / HIGH_WATERMARKS).unlink()
    log = LogDirectory.open([folder]).partitions[LARGE]

    assert log.high_watermark == made.stopped.topics["large"].partitions[0].high


def test_import_ends_at_the_high_watermark(shared: Path, tmp_path: Path) -> None:
    header = next(iter(LogDirectory.open([shared]).partitions[LARGE].batches(500))).header
    note(shared, header.base_offset)

    done = run("import", str(shared), "--to", str(tmp_path / "data"), "--topic", "large", "--quiet")

    assert done.returncode == 0, done.stderr.decode()
    assert f" {header.base_offset:,} records in " in done.stdout.decode()


def test_partition_deleted_from_the_metadata_is_reported_as_leftover(
    made: MadeDirectory, copied: Copy
) -> None:
    folder = copied(made.stopped)
    topic_id = LogDirectory.open([folder]).topic_id("large")
    assert topic_id is not None
    decide(folder, RemoveTopicRecord(topic_id=topic_id))

    directory = LogDirectory.open([folder])

    assert LARGE not in directory.partitions
    assert folder / "large-0" in directory.leftovers
    text = run("inspect", str(folder), "--quick").stdout.decode()
    assert "left over: large-0 (unknown to the cluster)" in text
