"""Random histories of a cluster: entries as brokers would write them, good and bad."""

from __future__ import annotations

from random import Random
from typing import Any

from rookery.cluster.entry import EntryAuthor, write_entry
from rookery.cluster.events.brokerevents import (
    BrokerBeat,
    BrokerExpired,
    BrokerLeft,
    BrokerRegistered,
    ClusterCreated,
    ConfigsChanged,
    ProcessRegistered,
    SettingChange,
)
from rookery.cluster.events.groupevents import (
    ExpiredPlace,
    GroupClaimed,
    GroupDeleted,
    GroupExpired,
    GroupPersisted,
    OffsetCommitted,
    OffsetPlace,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsExpired,
)
from rookery.cluster.events.logevents import (
    BatchesCommitted,
    Extent,
    IdleProducer,
    ObjectsCondemned,
    ObjectsDropped,
    ProducerIdsAllotted,
    ProducersExpired,
    ReplacedRange,
    RowPiece,
    RowsReplaced,
    SegmentsStaged,
    StagedSegment,
)
from rookery.cluster.events.pinevents import TopicPinned, TopicUnpinned
from rookery.cluster.events.topicevents import (
    LogStartMoved,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from rookery.cluster.resources import TOPIC_RESOURCE
from rookery.cluster.state.state import State
from rookery.wire.message import Message
from tests.cluster.txnhistories import transaction_event


class Historian:
    """Makes entries that fit a state, most of the time."""

    def __init__(self, seed: int, level: int = 1) -> None:
        self.random = Random(seed)
        self.level = level
        self.clock = 1_700_000_000_000
        self.sequences: dict[int, int] = {}

    def entry(self, state: State) -> bytes:
        """Return the next entry's bytes."""
        self.clock += self.random.randrange(100)
        if not state.cluster_id:
            created = ClusterCreated(cluster_id="c", feature_level=self.level)
            return self._write(0, 0, [created], state)
        if not state.brokers.by_node or self.random.random() < 0.05:
            return self._write(0, 0, [self._registration()], state)
        if self.random.random() < 0.02:
            process = ProcessRegistered(process_id=self.random.randbytes(16), purpose="caretaker")
            return self._write(0, 0, [process], state)
        incarnation = self.random.choice(sorted(state.brokers.sequences))
        sequence = state.brokers.sequences[incarnation] + 1
        if self.random.random() < 0.05:
            sequence += self.random.choice((-1, 1))  # a copy, or one that came too early
        if self.random.random() < 0.05:
            incarnation += 1  # an incarnation that is not alive
        events = [self._event(state) for _ in range(self.random.choice((1, 1, 2, 5)))]
        return self._write(incarnation, sequence, events, state)

    def _write(self, incarnation: int, sequence: int, events: list[Message], state: State) -> bytes:
        writer = EntryAuthor(incarnation, sequence, self.clock, state.applied, state.digest)
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
        if random.random() < 0.3:
            return self._group(state)
        if random.random() < 0.4:
            return transaction_event(random, state)
        if random.random() < 0.6:
            return self._commit(state)
        if random.random() < 0.5:
            return self._rewrite(state)
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
                        SettingChange(
                            name="message.timestamp.type",
                            value=random.choice((None, "CreateTime", "LogAppendTime")),
                        )
                    ],
                ),
                ConfigsChanged(
                    resource_type=4,
                    resource_name="",
                    changes=[SettingChange(name="x", value=random.choice((None, "1")))],
                ),
                ProducerIdsAllotted(count=10),
                ProducersExpired(
                    topic_id=topic.id,
                    partition=index,
                    producers=[IdleProducer(producer_id=1, last_sequence=random.randrange(9))],
                ),
                ObjectsDropped(object_ids=list(state.objects.condemned)[:2]),
                ObjectsCondemned(object_ids=list(state.objects.empty(state.brokers.sequences))[:2]),
                BrokerBeat(),
                TopicPinned(topic_id=topic.id, pin_id=bytes(16), until_ms=self.clock + 50),
                TopicUnpinned(topic_id=topic.id, pin_id=bytes(16)),
                BrokerLeft(),
                BrokerExpired(
                    incarnation=random.choice(sorted(state.brokers.sequences)), last_sequence=1
                ),
            )
        )

    def _group(self, state: State) -> Message:
        """Do something to a group, under its claim or under one that is gone."""
        random = self.random
        group_id = f"g{random.randrange(4)}"
        group = state.groups.by_id.get(group_id)
        if group is None or random.random() < 0.2:
            return GroupClaimed(group_id=group_id)
        epoch = group.epoch - (random.random() < 0.1)
        claim: dict[str, Any] = {"group_id": group_id, "epoch": epoch}
        version = group.version - (random.random() < 0.1)
        topic = random.choice(list(state.topics))
        partition = random.randrange(len(topic.partitions) + 1)
        known = group.offset(topic.id, partition)
        committed = OffsetCommitted(
            topic_id=topic.id,
            partition=partition,
            offset=random.randrange(99),
            leader_epoch=random.choice((-1, 3)),
            metadata=random.choice(("", "ü" * 3)),
            retention_ms=random.choice((-1, 5)),
        )
        expired = ExpiredPlace(
            topic_id=topic.id, partition=partition, commit_ms=known.commit_ms if known else 0
        )
        place = OffsetPlace(topic_id=topic.id, partition=partition)
        if random.random() < 0.5:
            return OffsetsCommitted(offsets=[committed, committed], **claim)
        return random.choice(
            (
                GroupPersisted(
                    version=version,
                    kind="classic",
                    body=random.randbytes(5),
                    is_last=random.random() < 0.7,
                    **claim,
                ),
                OffsetsDeleted(places=[place], **claim),
                OffsetsExpired(places=[expired], **claim),
                GroupDeleted(version=version, **claim),
                GroupExpired(version=version, **claim),
            )
        )

    def _rewrite(self, state: State) -> Message:
        """Replace some rows of a partition, exactly or not; or stage a segment for it."""
        random = self.random
        topic = random.choice(list(state.topics))
        partition = random.choice(topic.partitions)
        object_id = random.choice(((3 << 24) + 1, (4 << 24) + random.randrange(9)))
        if random.random() < 0.3 or not partition.base_offsets:
            staged = StagedSegment(
                object_id=object_id,
                topic_id=topic.id,
                partition=partition.index,
                base_offset=partition.log_start,
            )
            return SegmentsStaged(segments=[staged])
        first = random.randrange(len(partition.base_offsets))
        last = random.randrange(first, len(partition.base_offsets))
        bases = [partition.row(index).base_offset for index in range(first, last + 1)]
        kept = [base for base in bases[1:] if random.random() < 0.5]
        fingerprint = partition.fingerprint(range(first, last + 1))
        replaced = ReplacedRange(
            topic_id=topic.id,
            partition=partition.index,
            base_offset=bases[0],
            end_offset=partition.row(last).end_offset,
            fingerprint=fingerprint + (random.random() < 0.2),
            kind=random.choice((2, 6)),
            cleaned_to=random.choice((-1, bases[0])),
            pieces=[
                RowPiece(base_offset=base, position=at * 100, size=90, max_timestamp=self.clock)
                for at, base in enumerate([bases[0], *kept])
            ],
        )
        return RowsReplaced(object_id=object_id, ranges=[replaced])

    def _topic(self) -> TopicCreated:
        random = self.random
        return TopicCreated(
            topic_id=random.randbytes(16),
            name=f"t{random.randrange(4)}",
            partitions=random.randint(1, 3),
            replication_factor=random.randint(1, 3),
            configs=[SettingChange(name="retention.ms", value="1000")],
        )

    def _commit(self, state: State) -> BatchesCommitted:
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
        return BatchesCommitted(object_id=object_id, extents=extents)
