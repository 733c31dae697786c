"""Our reader's view of a directory, in the form in which clients saw it."""

from __future__ import annotations

from pathlib import Path

from rookery.formats.logfile.groups import LoggedGroups
from rookery.logdir.directory import LogDirectory
from rookery.logdir.internal import read_groups, read_transactions
from rookery.logdir.partition import PartitionLog
from rookery.model.topicname import INTERNAL_TOPICS
from rookery.model.uuid import uuid_text
from rookery.records import recordcodec
from rookery.testing.kafkasight import ClusterSight, SeenPartition, SeenRecord, SeenTopic

CREATE_TIME, LOG_APPEND_TIME = 1, 2
"""librdkafka's numbers."""


def view(folder: Path, asked: ClusterSight) -> ClusterSight:
    """Read a directory as a client would; times are looked up that `asked` has."""
    directory = LogDirectory.open([folder])
    assert directory.meta is not None
    sight = ClusterSight(folder, directory.meta.cluster_id)
    for name, log in directory.partitions.items():
        if name.topic in INTERNAL_TOPICS:
            continue
        topic_id = directory.topic_id(name.topic)
        assert topic_id is not None
        assert topic_id == log.topic_id
        topic = sight.topics.setdefault(
            name.topic,
            SeenTopic(uuid_text(topic_id), directory.image.topic_configs(name.topic), {}),
        )
        times = asked.topics[name.topic].partitions[name.partition].by_time
        topic.partitions[name.partition] = partition_view(log, list(times))
    sight.topics = dict(sorted(sight.topics.items()))
    sight.groups = group_view(directory)
    return sight


def group_view(directory: LogDirectory) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    """Return what groups have committed."""
    groups: LoggedGroups = read_groups(directory)
    groups.settle(())
    assert not groups.damaged
    assert not read_transactions(directory).damaged
    return {
        name: {
            # librdkafka sends the zero that ends a text in C, and hides it when it reads.
            (place.topic, place.partition): (offset.offset, offset.metadata.rstrip("\0"))
            for place, offset in group.offsets.items()
        }
        for name, group in groups.by_name.items()
        if group.offsets
    }


def partition_view(log: PartitionLog, times: list[int]) -> SeenPartition:
    """Read one partition."""
    every = list(visible(log))
    replay = log.replay()
    stable = replay.first_unstable()
    end = log.high_watermark if stable is None else stable
    spans = [(abort.producer_id, abort.first_offset, abort.last_offset) for abort in replay.aborted]
    committed = [
        record.offset
        for producer_id, record in every
        if record.offset < end
        and not any(
            producer_id == producer and first <= record.offset <= last
            for producer, first, last in spans
        )
    ]
    by_time = {}
    for when in times:
        located = log.offset_for_time(when)
        by_time[when] = -1 if located is None else located.offset
    rows = [record for _, record in every]
    return SeenPartition(log.log_start, log.high_watermark, rows, committed, by_time)


def visible(log: PartitionLog) -> list[tuple[int, SeenRecord]]:
    """Return a consumer's records, each with the id of its transaction's producer or -1."""
    records = []
    for batch in log.batches():
        header = batch.header
        if header.is_control:
            continue
        kind = LOG_APPEND_TIME if header.timestamp_type else CREATE_TIME
        producer = header.producer_id if header.is_transactional else -1
        for record in recordcodec.read(batch.data, header._replace(position=0)):
            if log.log_start <= record.offset < log.high_watermark:
                row = SeenRecord(
                    record.offset,
                    record.timestamp,
                    kind,
                    record.key,
                    record.value,
                    tuple(record.headers),
                )
                records.append((producer, row))
    return records
