"""Our reader sees in a directory what a consumer and an admin client of the real Kafka saw."""

from __future__ import annotations

from pathlib import Path

from rookery.logdir.directory import LogDirectory
from rookery.logdir.internal import read_transactions
from rookery.model.partition import TopicPartition
from rookery.testing.kafkadir import CODECS, MadeDirectory
from rookery.testing.kafkasight import ClusterSight, SeenPartition
from tests.logdir.views import view


def test_every_topic_record_and_offset_equals_what_clients_saw(seen: ClusterSight) -> None:
    sight = view(seen.folder, seen)

    assert sight.cluster_id == seen.cluster_id
    assert list(sight.topics) == list(seen.topics)
    assert len(seen.topics) >= 20
    for name, topic in seen.topics.items():
        assert sight.topics[name].id == topic.id
        assert sight.topics[name].configs == topic.configs
        assert list(sight.topics[name].partitions) == list(topic.partitions)
        for number, partition in topic.partitions.items():
            ours = sight.topics[name].partitions[number]
            place = f"{name}-{number}"
            assert (place, ours.low, ours.high) == (place, partition.low, partition.high)
            assert ours.records == partition.records
            assert (place, ours.committed) == (place, partition.committed)
            assert (place, ours.by_time) == (place, expected_by_time(partition))
    assert sight.groups == {name: offsets for name, offsets in seen.groups.items() if offsets}


def expected_by_time(partition: SeenPartition) -> dict[int, int]:
    """Return what Kafka found by time, or should have: it stops at a segment that is empty."""
    expected = dict(partition.by_time)
    for when, offset in partition.by_time.items():
        later = [record.offset for record in partition.records if record.timestamp >= when]
        if offset == -1 and later:
            expected[when] = later[0]
    return expected


def test_sample_directory_has_the_expected_contents(made: MadeDirectory) -> None:
    """The comparison above is worth as much as what there is to compare."""
    topics = made.killed.topics
    directory = LogDirectory.open([made.killed.folder])

    for codec in CODECS:
        codecs = {
            batch.header.codec.name
            for number in range(3)
            for batch in directory.partitions[TopicPartition(f"codec-{codec}", number)].batches()
        }
        assert codec in codecs
    assert all(topics[f"codec-{codec}"].partitions[0].records for codec in CODECS)
    assert len(directory.partitions[TopicPartition("large", 0)].segments) > 2
    assert topics["retained"].partitions[0].low > 0
    assert len(topics["compacted"].partitions[0].records) < 3500
    assert topics["deleted"].partitions[0].low == 70
    assert topics["emptied"].partitions[0].low == topics["emptied"].partitions[0].high == 100
    assert len(topics["tx"].partitions[0].committed) < len(topics["tx"].partitions[0].records)
    assert topics["tx-open"].partitions[0].committed == [0, 1, 2]
    assert {"gone-1", "gone-2"}.isdisjoint(topics)
    assert {name.partition.topic for name in directory.leftovers.values()} == {
        "gone-1",
        "gone-2",
        "recreated",
    }
    assert len(directory.partitions[TopicPartition("codec-none", 0)].epochs) >= 2
    assert directory.metadata is not None
    assert directory.metadata.snapshot is not None
    assert directory.metadata.snapshot.end_offset > 0


def test_clean_and_unclean_shutdown_are_distinguished(made: MadeDirectory) -> None:
    assert not LogDirectory.open([made.killed.folder]).is_clean
    assert LogDirectory.open([made.stopped.folder]).is_clean


def test_users_and_acls_are_in_the_image(seen: ClusterSight) -> None:
    image = LogDirectory.open([seen.folder]).image

    assert [(mechanism, name) for mechanism, name in image.scram] == [(1, "alice")]
    assert [rule.principal for rule in image.acls.values()] == ["User:alice"]
    assert image.features["metadata.version"] > 20
    assert image.next_producer_id > 0
    assert not image.skipped
    assert not image.orphans
    assert image.brokers[1].end_points[0].name == "PLAINTEXT"


def test_image_is_the_same_without_snapshots(made: MadeDirectory, tmp_path: Path) -> None:
    """The log begins at 0, so that all of it says what a snapshot and its rest say."""
    source = made.stopped.folder / "__cluster_metadata-0"
    copy = tmp_path / "data" / "__cluster_metadata-0"
    copy.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix != ".checkpoint":
            (copy / path.name).write_bytes(path.read_bytes())

    whole = LogDirectory.open([tmp_path / "data"]).image
    image = LogDirectory.open([made.stopped.folder]).image

    for part in ("topics", "configs", "features", "scram", "acls", "next_producer_id"):
        assert getattr(whole, part) == getattr(image, part), part
    assert whole.brokers[1].broker_epoch == image.brokers[1].broker_epoch
    assert whole.brokers[1].end_points == image.brokers[1].end_points
    assert whole.brokers[1].fenced == image.brokers[1].fenced


def test_transactional_ids_and_their_states_are_read(made: MadeDirectory) -> None:
    killed = read_transactions(LogDirectory.open([made.killed.folder])).by_id
    stopped = read_transactions(LogDirectory.open([made.stopped.folder])).by_id

    ongoing, complete_commit, complete_abort = 1, 4, 5
    assert killed["tx-left"].transaction_status == ongoing
    assert killed["tx-one"].transaction_status == complete_commit
    assert killed["tx-b"].transaction_status == complete_abort
    assert stopped["tx-left"].transaction_status in {0, complete_abort}


def test_producers_after_a_clean_shutdown_equal_those_of_snapshot_and_log(
    made: MadeDirectory, tmp_path: Path
) -> None:
    """The batches alone must lead to the state that Kafka wrote down."""
    for name, log in LogDirectory.open([made.stopped.folder]).partitions.items():
        known = log.replay()
        log.snapshots.clear()
        replayed = log.replay()
        is_whole = log.log_start == 0 and name.topic != "__transaction_state"
        if is_whole:
            assert known.producers == replayed.producers, name
            assert known.aborted == replayed.aborted, name
        assert known.open == replayed.open
