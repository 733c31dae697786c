"""A log opened without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.cluster.events.pinevents import TopicPinned
from rookery.direct.blockinglog import BlockingLog, open_shared
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.testing.wait import wait_until
from tests.direct.logs import Cluster, create, read_all, send, values


def test_missing_log_is_an_error_and_creates_nothing(tmp_path: Path) -> None:
    for place in (
        ClusterAddress(store=f"file://{tmp_path}/none"),
        ClusterAddress(data=f"{tmp_path}/none"),
    ):
        with pytest.raises(ConfigError, match="there is no"):
            BlockingLog(place)
    assert not list(tmp_path.iterdir())


async def test_a_store_without_a_cluster_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(ConfigError, match="no cluster has its log there"):
        async with DirectLog.open(ClusterAddress(store=f"file://{tmp_path}/store")):
            pass


def test_barrier_shows_commits_of_a_live_broker(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        send(broker, "t", values(10))
        with cluster.log as log:
            assert log.log.state.topics.by_name["t"].partitions[0].next_offset == 10
            send(broker, "t", values(5))
            log.run(log.log.barrier())
            assert log.log.state.topics.by_name["t"].partitions[0].next_offset == 15
            assert not log.log.state.brokers.processes


def test_a_writer_is_a_process_of_the_cluster_until_it_leaves(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker(session_timeout_ms=60_000) as broker:
        send(broker, "t", values(1))
        brokers = broker.broker.replica.state.brokers
        with cluster.log as log:
            [topic] = log.log.state.topics
            pin = TopicPinned(topic_id=topic.id, pin_id=bytes(16), until_ms=1 << 60)
            [outcome] = log.run(log.log.propose([pin]))
            assert not outcome.error
            wait_until(lambda: log.log.incarnation in brokers.processes)
            names = log.run(log.log.numbers())
            assert names() != names()
        wait_until(lambda: not brokers.processes)


def objects_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sent", [1, 60])
def test_recreated_cluster_is_detected_and_not_written(tmp_path: Path, sent: int) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker(inline_bytes=0) as broker:
        create(broker, "t")
        send(broker, "t", values(20), each=1)
    kept = open_shared(cluster.place)
    kept.run(kept.log.numbers())  # it has joined, as one that writes
    folder = tmp_path / "store"
    folder.rename(tmp_path / "deleted")
    # Shorter than the old log, or longer: both could be mistaken for it.
    with cluster.broker(inline_bytes=0) as broker:
        create(broker, "t")
        send(broker, "t", values(sent), each=1)
    before = objects_in(folder)

    for work in (kept.log.barrier, kept.log.numbers):
        with pytest.raises(ConfigError, match=r"which was deleted since\. Nothing was written"):
            kept.run(work())
    pin = TopicPinned(topic_id=bytes(16), pin_id=bytes(16), until_ms=1)
    with pytest.raises(ConfigError, match="holds the log of cluster"):
        kept.run(kept.log.propose([pin]))
    kept.close()
    assert objects_in(folder) == before

    # The next request for the log gets the new one.
    again = open_shared(cluster.place)
    assert again is not kept
    assert again.log.state.topics.by_name["t"].partitions[0].next_offset == sent
    again.close()
    assert len(read_all(cluster)) == sent


def test_entry_of_another_cluster_is_void(tmp_path: Path) -> None:
    """As if the cluster were created again between a read and an append."""
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t")
        send(broker, "t", values(5))
        with cluster.log as log:
            [topic] = log.log.state.topics
            log.run(log.log.numbers())
            log.log.state.cluster_id = "of another"
            pin = TopicPinned(topic_id=topic.id, pin_id=bytes(16), until_ms=1 << 60)
            log.run(_proposed(log.log, pin))
            log.log.is_foreign = True
        send(broker, "t", values(5))
        known = broker.broker.replica.state.topics.by_name["t"]
        wait_until(lambda: known.partitions[0].next_offset == 10)
        assert not known.pins
    assert len(read_all(cluster)) == 10


async def _proposed(log: DirectLog, event: TopicPinned) -> None:
    await log.replica.propose([event])
