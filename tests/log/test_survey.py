"""The survey after a crash of the machine: what it checks, and what it does not change."""

from __future__ import annotations

from pathlib import Path

from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.formats.journal import journal_header
from rookery.formats.keys import STORED, journal_name, object_id
from rookery.log.check.survey import JournalSurvey
from rookery.log.read.files import JournalFiles
from rookery.testing.clock import ManualClock
from tests.log.stored import TOPIC, batch


async def test_only_journals_are_surveyed(tmp_path: Path) -> None:
    replica = Replica(open_log("memory:"), ManualClock())
    await replica.open()
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
    incarnation = await replica.register(
        BrokerRegistered(process_id=TOPIC, node_id=1, host="h", port=1)
    )
    await replica.propose(
        [TopicCreated(topic_id=TOPIC, name="birds", partitions=1, replication_factor=1, configs=[])]
    )
    data = batch(0, 3, 100)
    whole, lost, stored = (object_id(incarnation, number) for number in (1, 2, STORED))
    head = journal_header(whole)
    (tmp_path / journal_name(whole)).write_bytes(head + data)
    for identity in (whole, lost, stored):
        extent = Extent(
            topic_id=TOPIC, partition=0, position=len(head), size=len(data), records=3,
            attributes=0, max_timestamp=5, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        )  # fmt: skip
        await replica.propose([BatchesCommitted(object_id=identity, extents=[extent])])
    files = JournalFiles(tmp_path)
    assert await JournalSurvey(replica, files, tmp_path / "mark").run() == 3
    partition = replica.state.topics.by_name["birds"].partitions[0]
    assert partition.objects.tolist() == [whole, 0, stored]
    await files.close()
    await replica.close()
