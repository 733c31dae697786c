"""Random histories of a cluster: entries as brokers would write them, good and bad."""

from __future__ import annotations

from random import Random

from rookery.cluster.entry import Writer, write_entry
from rookery.cluster.events.brokers import (
    BrokerBeat,
    BrokerExpired,
    BrokerLeft,
    BrokerRegistered,
    ClusterCreated,
    ConfigChange,
    ConfigsChanged,
)
from rookery.cluster.events.log import (
    Committed,
    Extent,
    IdleProducer,
    ObjectsDropped,
    PayloadMove,
    PayloadsMoved,
    ProducerIdsAllotted,
    ProducersExpired,
)
from rookery.cluster.events.topics import (
    LogStartMoved,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from rookery.cluster.state.state import TOPIC_RESOURCE, State
from rookery.wire.message import Message


class Historian:
    """Makes entries that fit a state, most of the time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = 1_700_000_000_000
        self.sequences: dict[int, int] = {}

    def entry(self, state: State) -> bytes:
        """Return the next entry's bytes."""
        self.clock += self.random.randrange(100)
        if not state.cluster_id:
            return self._write(0, 0, [ClusterCreated(cluster_id="c", feature_level=1)], state)
        if not state.brokers.by_node or self.random.random() < 0.05:
            return self._write(0, 0, [self._registration()], state)
        incarnation = self.random.choice(sorted(state.brokers.sequences))
        sequence = state.brokers.sequences[incarnation] + 1
        if self.random.random() < 0.05:
            sequence += self.random.choice((-1, 1))  # a copy, or one that came too early
        if self.random.random() < 0.05:
            incarnation += 1  # somebody who does not live
        events = [self._event(state) for _ in range(self.random.choice((1, 1, 2, 5)))]
        return self._write(incarnation, sequence, events, state)

    def _write(self, incarnation: int, sequence: int, events: list[Message], state: State) -> bytes:
        writer = Writer(incarnation, sequence, self.clock, state.applied, state.digest)
        return write_entry(writer, events, [b"payload"])

    def _registration(self) -> BrokerRegistered:
        return BrokerRegistered(
            process_id=self.random.randbytes(16),
            node_id=self.random.choice((-1, 1, 2, 3)),
            host="host",
            port=9092,
        )

    def _event(self, state: State) -> Message:
        random = self.random
        topics = list(state.topics)
        if not topics or random.random() < 0.1:
            return self._topic()
        topic = random.choice(topics)
        index = random.randrange(len(topic.partitions) + 1)
        partition = state.topics.partition(topic.id, index)
        end = partition.next_offset if partition else 5
        if random.random() < 0.6:
            return self._commit(state)
        return random.choice(
            (
                TopicDeleted(topic_id=topic.id),
                PartitionsAdded(topic_id=topic.id, partitions=len(topic.partitions) + 1),
                LogStartMoved(
                    topic_id=topic.id, partition=index, offset=random.randint(-1, end + 1)
                ),
                ConfigsChanged(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=topic.name,
                    changes=[
                        ConfigChange(
                            name="message.timestamp.type",
                            value=random.choice((None, "CreateTime", "LogAppendTime")),
                        )
                    ],
                ),
                ConfigsChanged(
                    resource_type=4,
                    resource_name="",
                    changes=[ConfigChange(name="x", value=random.choice((None, "1")))],
                ),
                ProducerIdsAllotted(count=10),
                ProducersExpired(
                    topic_id=topic.id,
                    partition=index,
                    producers=[IdleProducer(producer_id=1, last_sequence=random.randrange(9))],
                ),
                PayloadsMoved(
                    moves=[
                        PayloadMove(entry=-one, object_id=1 << 24, position=100)
                        for one in sorted(state.payloads)[:2]
                    ]
                ),
                ObjectsDropped(object_ids=sorted(state.objects)[:2]),
                BrokerBeat(),
                BrokerLeft(),
                BrokerExpired(
                    incarnation=random.choice(sorted(state.brokers.sequences)), last_sequence=1
                ),
            )
        )

    def _topic(self) -> TopicCreated:
        random = self.random
        return TopicCreated(
            topic_id=random.randbytes(16),
            name=f"t{random.randrange(4)}",
            partitions=random.randint(1, 3),
            replication_factor=random.randint(1, 3),
            configs=[ConfigChange(name="retention.ms", value="1000")],
        )

    def _commit(self, state: State) -> Committed:
        random = self.random
        object_id = random.choice((0, 0, 1 << 24, 2 << 24))
        position = random.randrange(1000)
        extents = []
        for _ in range(random.randint(1, 4)):
            topic = random.choice(list(state.topics))
            size = random.randrange(70, 200)
            extents.append(
                Extent(
                    topic_id=random.choice((topic.id, topic.id, bytes(16))),
                    partition=random.randrange(len(topic.partitions) + 1),
                    position=position,
                    size=size,
                    records=random.randint(1, 5),
                    attributes=0,
                    max_timestamp=self.clock,
                    producer_id=random.choice((-1, 1, 2)),
                    producer_epoch=random.choice((0, 0, 1)),
                    base_sequence=random.randrange(8),
                )
            )
            position += size
        return Committed(object_id=object_id, extents=extents)
