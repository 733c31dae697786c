"""Objects that failed or whose commit is uncertain are abandoned, and deleted in the end."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.numbers import Numbers
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.formats.keys import STORED, object_id
from rookery.log.write.uploads import Uploads
from rookery.store.open import open_store
from rookery.testing.clock import ManualClock
from tests.log.site import Site, batch

TOPIC = bytes(range(16))


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    """A replica that has not joined the cluster."""
    made = Replica(open_log(f"memory:{os.urandom(8).hex()}"), ManualClock())
    await made.open()
    await made.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
    yield made
    await made.close()


async def _join(replica: Replica) -> None:
    event = BrokerRegistered(process_id=bytes(16), node_id=1, host="h", port=1, rack=None)
    await replica.register(event)


async def test_upload_in_doubt_is_condemned_unless_it_is_committed(replica: Replica) -> None:
    await _join(replica)
    await replica.propose(
        [TopicCreated(topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[])]
    )
    numbers = Numbers(replica.incarnation)
    uploads = Uploads(open_store("memory:"), replica, ManualClock(), numbers)
    committed, lost = numbers(), numbers()
    extent = Extent(
        topic_id=TOPIC, partition=0, position=0, size=100, records=1, attributes=0,
        max_timestamp=1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    await replica.propose([BatchesCommitted(object_id=committed, extents=[extent])])
    for identity in (0, committed, lost):  # 0 is an entry's payload
        uploads.on_uncertain(identity)

    await uploads.maintain()

    assert list(replica.state.objects.condemned) == [lost]


async def test_failed_upload_is_remembered_until_the_log_can_be_written(
    replica: Replica,
) -> None:
    numbers = Numbers(1)
    uploads = Uploads(open_store("memory:"), replica, ManualClock(), numbers)
    lost = numbers()
    uploads.on_uncertain(lost)
    with pytest.raises(IncarnationFenced):
        await uploads.maintain()  # it has not joined yet
    await _join(replica)

    await uploads.maintain()

    assert list(replica.state.objects.condemned) == [lost]


async def test_object_of_repeated_batches_only_is_condemned() -> None:
    site = Site()
    writer = await site.begin(partitions=1)
    try:
        sent = batch(producer_id=7, producer_epoch=0, base_sequence=0)
        again = batch(producer_id=7, producer_epoch=0, base_sequence=1)

        outcomes = [await writer.write(sent), await writer.write(sent)]
        outcomes.append(await writer.write(sent, again))
        await writer.uploads.maintain()

        assert [[outcome.is_duplicate for outcome in some] for some in outcomes] == [
            [False],
            [True],
            [True, False],
        ]
        repeated = object_id(writer.incarnation, STORED + 1)
        assert list(writer.replica.state.objects.condemned) == [repeated]
    finally:
        await site.close()
