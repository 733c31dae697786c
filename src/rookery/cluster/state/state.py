"""The whole state, and `apply`, which applies an entry to it.

    entry ──► its writer counts? ──no──► void
                    │ yes
                    └──► each event in turn ──► an outcome for whoever proposed it

Outcomes go into a rolling digest that entries carry, so that replicas detect differences: see
`digest.py` and `cluster/replica.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rookery.cluster.entry import Entry
from rookery.cluster.events import brokerevents, logevents, topicevents
from rookery.cluster.state import (
    aborted,
    grouprules,
    importrules,
    pinrules,
    producers,
    sinkrules,
    txnrules,
)
from rookery.cluster.state.brokers import Brokers
from rookery.cluster.state.digest import advance
from rookery.cluster.state.groups import Groups
from rookery.cluster.state.objects import Objects, SegmentName
from rookery.cluster.state.outcome import OK
from rookery.cluster.state.outcome import AppendOutcome as AppendOutcome  # noqa: PLC0414 (offered here, too)
from rookery.cluster.state.outcome import EntryOutcome as EntryOutcome  # noqa: PLC0414
from rookery.cluster.state.outcome import Outcome as Outcome  # noqa: PLC0414
from rookery.cluster.state.partition import BatchPosition, Partition, Row
from rookery.cluster.state.sinks import Sinks
from rookery.cluster.state.topics import Topic, Topics
from rookery.cluster.state.txnends import Moment
from rookery.cluster.state.txns import Transactions
from rookery.errors import Corrupt, ErrorCode
from rookery.records.batches import TRANSACTIONAL
from rookery.wire.message import Message

FEATURE_LEVEL: Final = 2
"""The newest rules that this program knows. Each change to the behaviour of `apply` needs the next
level: see docs/designs/0010-digests-and-upgrades.md."""
SHORT_EPOCHS: Final = 2
"""The first feature level at which leader epochs are dropped with their records."""
CONDITIONAL_CONFIGS: Final = 2
"""The first feature level at which a change of settings can depend on the observed ones."""
EMPTY_CONFIGS: Final = 2
"""The first feature level at which a resource without settings is removed."""
FORGET_ABORTED: Final = 2
"""The first feature level at which compaction drops aborted transactions that it has passed."""
KEEP_BUSY_PRODUCERS: Final = 2
"""The first feature level at which producers with an open transaction never expire."""
ONE_REGISTRATION: Final = 2
"""The first feature level at which an entry registers at most one process."""
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
_ALL_BROKERS: Final = ""
"""The name of the settings that topics inherit."""
_PREFIXES: Final = {CLIENT_METRICS_RESOURCE: "client metrics ", GROUP_RESOURCE: "group "}


_NONE: Final = ErrorCode.NONE
_LOST: Final = AppendOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, is_duplicate=False)
_CONDEMNED: Final = AppendOutcome(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, is_duplicate=False)


class State:
    """The complete state that brokers agree on."""

    def __init__(self) -> None:
        self.applied = 0
        self.digest = 0
        self.cluster_id = ""
        self.feature_level = 0
        self.brokers = Brokers()
        self.topics = Topics()
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0
        self.objects = Objects()
        self.groups = Groups()
        self.transactions = Transactions()
        self.sinks = Sinks()

    def apply(self, number: int, entry: Entry, events: list[Message]) -> EntryOutcome:
        """Apply one entry; it must be the next.

        Raises:
            Corrupt: the entry cannot be applied by this program; the process must stop.
        """
        if number != self.applied + 1:
            raise Corrupt(f"entry {number} of the cluster log comes after entry {self.applied}")
        self.applied = number
        done = EntryOutcome(
            number,
            is_void=False,
            outcomes=[],
            grown=[],
            marked=[],
            ended=[],
            moved=[],
            dropped=[],
            claims_changed=[],
        )
        if not self._counts(entry, events):
            return done._replace(is_void=True)
        for event in events:
            done.outcomes.append(self._handlers[type(event)](self, entry, event, done))
        self.digest = advance(self.digest, self.feature_level, number, done.outcomes)
        return done

    def is_foreign(self, entry: Entry) -> bool:
        """Whether the writer of an entry had the log of another cluster open."""
        return bool(entry.cluster and self.cluster_id) and entry.cluster != self.cluster_id

    def _counts(self, entry: Entry, events: list[Message]) -> bool:
        if self.is_foreign(entry):
            return False
        if entry.incarnation:
            return self.brokers.take(entry.incarnation, entry.sequence, entry.stamp_ms)
        return all(isinstance(event, _WITHOUT_WRITER) for event in events)

    # The cluster and its brokers.

    def _cluster_created(
        self, _entry: Entry, event: brokerevents.ClusterCreated, _done: EntryOutcome
    ) -> Outcome:
        if not self.cluster_id:
            self.cluster_id = event.cluster_id
            self._raise_level(event.feature_level)
        return Outcome(ErrorCode.NONE, self.cluster_id)

    def _level_raised(
        self, _entry: Entry, event: brokerevents.FeatureLevelRaised, _done: EntryOutcome
    ) -> Outcome:
        self._raise_level(event.feature_level)
        return OK

    def _raise_level(self, level: int) -> None:
        if level > FEATURE_LEVEL:
            raise Corrupt(
                f"the cluster has feature level {level}, this program knows {FEATURE_LEVEL}; "
                "start a newer Rookery"
            )
        self.feature_level = max(self.feature_level, level)

    def _registered(
        self, entry: Entry, event: brokerevents.BrokerRegistered, done: EntryOutcome
    ) -> Outcome:
        if self._has_registered(done):
            return Outcome(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        broker = self.brokers.register(done.number, event, entry.stamp_ms)
        self.topics.lead(self.brokers.nodes)
        return Outcome(ErrorCode.NONE, broker.node_id)

    def _process_registered(
        self, entry: Entry, event: brokerevents.ProcessRegistered, done: EntryOutcome
    ) -> Outcome:
        if self._has_registered(done):
            return Outcome(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        self.brokers.admit(done.number, event, entry.stamp_ms)
        return OK

    def _has_registered(self, done: EntryOutcome) -> bool:
        """Whether an earlier event of the entry registered a process under its number."""
        return self.feature_level >= ONE_REGISTRATION and done.number in self.brokers.sequences

    def _beat(self, _entry: Entry, _event: Message, _done: EntryOutcome) -> Outcome:
        return OK

    def _left(self, entry: Entry, _event: Message, _done: EntryOutcome) -> Outcome:
        self.brokers.remove(entry.incarnation)
        self.topics.lead(self.brokers.nodes)
        return OK

    def _expired(
        self, _entry: Entry, event: brokerevents.BrokerExpired, _done: EntryOutcome
    ) -> Outcome:
        if self.brokers.sequences.get(event.incarnation) != event.last_sequence:
            return Outcome(ErrorCode.BROKER_ID_NOT_REGISTERED)
        self.brokers.remove(event.incarnation)
        self.topics.lead(self.brokers.nodes)
        return OK

    # Topics and settings.

    def _topic_created(
        self, _entry: Entry, event: topicevents.TopicCreated, _done: EntryOutcome
    ) -> Outcome:
        if event.name in self.topics.by_name or event.topic_id in self.topics.by_id:
            return Outcome(ErrorCode.TOPIC_ALREADY_EXISTS)
        if self.topics.alike(event.name):
            return Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION)
        topic = Topic(event.topic_id, event.name, event.replication_factor)
        for change in event.configs:
            topic.configure(change.name, change.value)
        topic.grow(event.partitions, self.brokers.nodes)
        self.topics.add(topic)
        return OK

    def _topic_deleted(
        self, _entry: Entry, event: topicevents.TopicDeleted, done: EntryOutcome
    ) -> Outcome:
        topic = self.topics.by_id.get(event.topic_id)
        if topic is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_ID)
        self.topics.remove(topic)
        self.groups.forget_topic(topic.id)
        if any(partition.named_to >= 0 for partition in topic.partitions):
            self.objects.retired_names[topic.name] = None
        for partition in topic.partitions:
            self.objects.free(partition.begin_at(partition.next_offset))
            # Waiting readers must learn that the partition no longer exists.
            done.grown.append((topic.id, partition.index))
        return OK

    def _partitions_added(
        self, _entry: Entry, event: topicevents.PartitionsAdded, _done: EntryOutcome
    ) -> Outcome:
        topic = self.topics.by_id.get(event.topic_id)
        if topic is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_ID)
        if event.partitions <= len(topic.partitions):
            return Outcome(ErrorCode.INVALID_PARTITIONS)
        topic.grow(event.partitions, self.brokers.nodes)
        return OK

    def _configs_changed(
        self, _entry: Entry, event: brokerevents.ConfigsChanged, _done: EntryOutcome
    ) -> Outcome:
        if event.resource_type == TOPIC_RESOURCE:
            topic = self.topics.by_name.get(event.resource_name)
            if topic is None:
                return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not self._is_as_observed(topic.configs, event):
                return Outcome(ErrorCode.INVALID_UPDATE_VERSION)
            for change in event.changes:
                topic.configure(change.name, change.value)
            return OK
        if not self._is_as_observed(self.broker_configs.get(event.resource_name, {}), event):
            return Outcome(ErrorCode.INVALID_UPDATE_VERSION)
        configs = self.broker_configs.setdefault(event.resource_name, {})
        for change in event.changes:
            if change.value is None:
                configs.pop(change.name, None)
            else:
                configs[change.name] = change.value
        if not configs and self.feature_level >= EMPTY_CONFIGS:
            del self.broker_configs[event.resource_name]
        if event.resource_name == _ALL_BROKERS:
            self.topics.touch_all()
        return OK

    def _is_as_observed(
        self, configs: Mapping[str, str], event: brokerevents.ConfigsChanged
    ) -> bool:
        """Whether the settings are still those that the change is based on."""
        if not event.is_conditional or self.feature_level < CONDITIONAL_CONFIGS:
            return True
        return configs == {one.name: one.value for one in event.observed}

    def _log_start_moved(
        self, _entry: Entry, event: topicevents.LogStartMoved, done: EntryOutcome
    ) -> Outcome:
        partition = self.topics.partition(event.topic_id, event.partition)
        if partition is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        offset = partition.next_offset if event.offset == -1 else event.offset
        if not 0 <= offset <= partition.next_offset:
            return Outcome(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > partition.log_start:
            before = partition.log_start
            self.objects.free(partition.begin_at(offset))
            if self.feature_level >= SHORT_EPOCHS:
                # Not up to the new log start: reads that began before this entry still need them.
                partition.forget_epochs(before)
            done.grown.append((event.topic_id, event.partition))
        return Outcome(ErrorCode.NONE, partition.log_start)

    # The log.

    def _committed(
        self, entry: Entry, event: logevents.BatchesCommitted, done: EntryOutcome
    ) -> Outcome:
        object_id = event.object_id or -done.number
        stamp_ms = entry.stamp_ms
        if object_id in self.objects.condemned:
            return Outcome(_NONE, [_CONDEMNED] * len(event.extents))
        return Outcome(
            _NONE, [self._append(extent, object_id, stamp_ms, done) for extent in event.extents]
        )

    def _append(
        self, extent: logevents.Extent, object_id: int, stamp_ms: int, done: EntryOutcome
    ) -> AppendOutcome:
        topic = self.topics.by_id.get(extent.topic_id)
        if topic is None or not 0 <= extent.partition < len(topic.partitions):
            return _LOST
        partition = topic.partitions[extent.partition]
        producer_id = extent.producer_id
        if producer_id >= 0:
            transaction = self.transactions.by_producer.get(producer_id)
            is_transactional = extent.attributes & TRANSACTIONAL
            if is_transactional or transaction is not None:
                error = txnrules.judge(transaction, partition, extent)
                if error is not _NONE:
                    return AppendOutcome(error, -1, -1, is_duplicate=False)
            window = partition.producers.get(producer_id)
            verdict = producers.judge(
                window, extent.producer_epoch, extent.base_sequence, extent.records
            )
            if verdict is not producers.NEW:
                return AppendOutcome(verdict.error, verdict.offset, -1, verdict.offset >= 0)
            if is_transactional:
                moment = Moment(done.number, stamp_ms)
                error = txnrules.join(self.transactions, partition, extent, moment)
                if error is not _NONE:
                    return AppendOutcome(error, -1, -1, is_duplicate=False)
            partition.producers[producer_id] = producers.remember(
                window,
                extent.producer_epoch,
                extent.base_sequence,
                extent.records,
                offset=partition.next_offset,
                time_ms=stamp_ms,
            )
        append_time = -1
        # A batch without a timestamp gets the time of its commit, because retention needs one.
        time_ms = extent.max_timestamp if extent.max_timestamp >= 0 else stamp_ms
        if topic.is_append_time:
            append_time = time_ms = partition.append_time = max(partition.append_time, stamp_ms)
        base = partition.next_offset
        place = BatchPosition(object_id, extent.position, extent.size)
        if partition.append(place, extent.records, time_ms, is_append_time=topic.is_append_time):
            self.objects.add_row(object_id)
        done.grown.append((extent.topic_id, extent.partition))
        return AppendOutcome(_NONE, base, append_time, False)  # noqa: FBT003 (for every batch: faster)

    def _segments_staged(
        self, _entry: Entry, event: logevents.SegmentsStaged, _done: EntryOutcome
    ) -> Outcome:
        return Outcome(_NONE, [self._stage(staged) for staged in event.segments])

    def _stage(self, staged: logevents.StagedSegment) -> bool:
        """Name a segment; each plain name is used once, in the order of offsets."""
        topic = self.topics.by_id.get(staged.topic_id)
        partition = self.topics.partition(staged.topic_id, staged.partition)
        if topic is None or partition is None or staged.object_id in self.objects.condemned:
            return False
        is_plain = (
            staged.base_offset > partition.named_to and topic.name not in self.objects.retired_names
        )
        if is_plain:
            partition.named_to = staged.base_offset
        self.objects.stage(
            staged.object_id,
            SegmentName(topic.name, staged.partition, staged.base_offset, is_plain),
        )
        return is_plain

    def _replaced(self, entry: Entry, event: logevents.RowsReplaced, done: EntryOutcome) -> Outcome:
        if event.object_id in self.objects.condemned:
            return Outcome(_NONE, [False] * len(event.ranges))
        return Outcome(
            _NONE,
            [
                not self._is_held_off(one, entry.stamp_ms)
                and self._replace(event.object_id, one, done)
                for one in event.ranges
            ],
        )

    def _is_held_off(self, one: logevents.ReplacedRange, now_ms: int) -> bool:
        """Whether the range compacts away records that a pin protects."""
        topic = self.topics.by_id.get(one.topic_id)
        held = None if topic is None else topic.held_from(one.partition, now_ms)
        # Records at or above `cleaned_to` are unchanged, even if they are in the range.
        return held is not None and one.cleaned_to > held

    def _replace(self, object_id: int, one: logevents.ReplacedRange, done: EntryOutcome) -> bool:
        """Replace rows, if the old ones are exactly those that the rewriter read."""
        partition = self.topics.partition(one.topic_id, one.partition)
        span = partition.span(one.base_offset, one.end_offset) if partition is not None else None
        if partition is None or span is None or partition.fingerprint(span) != one.fingerprint:
            return False
        if not one.pieces:
            return False
        ends = [piece.base_offset for piece in one.pieces[1:]] + [one.end_offset]
        rows = [
            Row(piece.base_offset, end, object_id, piece.position, piece.size,
                piece.max_timestamp, one.kind)
            for piece, end in zip(one.pieces, ends, strict=True)
        ]  # fmt: skip
        if rows[0].base_offset != one.base_offset or not _ascend(rows):
            return False
        for _ in rows:
            self.objects.add_row(object_id)
        self.objects.free(partition.replace(span, rows))
        if one.cleaned_to > partition.cleaned_to:
            partition.cleaned_to = one.cleaned_to
            if self.feature_level >= FORGET_ABORTED:
                # Compaction has removed all their records, so readers have nothing to skip.
                partition.aborted = aborted.after(partition.aborted, one.cleaned_to)
        done.moved.append((one.topic_id, one.partition))
        return True

    def _objects_condemned(
        self, _entry: Entry, event: logevents.ObjectsCondemned, done: EntryOutcome
    ) -> Outcome:
        return Outcome(_NONE, self.objects.condemn(event.object_ids, done.number))

    def _rows_lost(self, _entry: Entry, event: logevents.RowsLost, _done: EntryOutcome) -> Outcome:
        partition = self.topics.partition(event.topic_id, event.partition)
        if partition is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.objects.free([partition.lose(base) for base in event.base_offsets])
        return OK

    def _objects_dropped(
        self, _entry: Entry, event: logevents.ObjectsDropped, done: EntryOutcome
    ) -> Outcome:
        kept = self.objects.drop(event.object_ids)
        done.dropped.extend(one for one in event.object_ids if one not in kept)
        return Outcome(ErrorCode.NONE, kept)

    def _ids_allotted(
        self, _entry: Entry, event: logevents.ProducerIdsAllotted, _done: EntryOutcome
    ) -> Outcome:
        first = self.next_producer_id
        self.next_producer_id += event.count
        return Outcome(ErrorCode.NONE, first)

    def _producers_expired(
        self, _entry: Entry, event: logevents.ProducersExpired, _done: EntryOutcome
    ) -> Outcome:
        partition = self.topics.partition(event.topic_id, event.partition)
        if partition is not None:
            for idle in event.producers:
                if self._is_idle(partition, idle):
                    del partition.producers[idle.producer_id]
        return OK

    def _is_idle(self, partition: Partition, idle: logevents.IdleProducer) -> bool:
        """Whether a producer has been inactive since it was found idle."""
        window = partition.producers.get(idle.producer_id)
        if window is None:
            return False
        known = producers.describe(window)
        if known.last_sequence != idle.last_sequence:
            return False
        if self.feature_level < KEEP_BUSY_PRODUCERS:
            return True
        has_written = idle.time_ms not in (-1, known.time_ms)
        return not has_written and idle.producer_id not in partition.ongoing

    _handlers: Final[dict[type[Message], Callable[..., Outcome]]] = {
        brokerevents.ClusterCreated: _cluster_created,
        brokerevents.FeatureLevelRaised: _level_raised,
        brokerevents.BrokerRegistered: _registered,
        brokerevents.ProcessRegistered: _process_registered,
        brokerevents.BrokerBeat: _beat,
        brokerevents.BrokerLeft: _left,
        brokerevents.BrokerExpired: _expired,
        brokerevents.ConfigsChanged: _configs_changed,
        topicevents.TopicCreated: _topic_created,
        topicevents.TopicDeleted: _topic_deleted,
        topicevents.PartitionsAdded: _partitions_added,
        topicevents.LogStartMoved: _log_start_moved,
        logevents.BatchesCommitted: _committed,
        logevents.RowsLost: _rows_lost,
        logevents.SegmentsStaged: _segments_staged,
        logevents.RowsReplaced: _replaced,
        logevents.ObjectsCondemned: _objects_condemned,
        logevents.ObjectsDropped: _objects_dropped,
        logevents.ProducerIdsAllotted: _ids_allotted,
        logevents.ProducersExpired: _producers_expired,
        **grouprules.HANDLERS,
        **importrules.HANDLERS,
        **pinrules.HANDLERS,
        **sinkrules.HANDLERS,
        **txnrules.HANDLERS,
    }


_WITHOUT_WRITER: Final = (
    brokerevents.ClusterCreated,
    brokerevents.BrokerRegistered,
    brokerevents.ProcessRegistered,
)


def resource_key(resource_type: int, name: str) -> str:
    """Return the name of a resource in events that change its settings.

    Settings of groups and client metrics are stored with those of brokers, under a prefix. `apply`
    has no special rule for them, so programs of any level can store them.
    """
    return _PREFIXES.get(resource_type, "") + name


def resource_name(resource_type: int, key: str) -> str:
    """Return the name of the resource that has this key."""
    return key.removeprefix(_PREFIXES.get(resource_type, ""))


def configured(configs: Mapping[str, Mapping[str, str]], resource_type: int) -> list[str]:
    """Return the groups, or the client metrics, that have settings."""
    prefix = _PREFIXES[resource_type]
    return sorted(
        resource_name(resource_type, key)
        for key, values in configs.items()
        if values and key.startswith(prefix)
    )


def _ascend(rows: list[Row]) -> bool:
    """Whether every row begins below its end."""
    return all(row.base_offset < row.end_offset for row in rows)
