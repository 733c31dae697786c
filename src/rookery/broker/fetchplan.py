"""The plan of a fetch: what the state and the memory can return now for each of its partitions.

All results of a look come from one version of the state. Records in memory are taken immediately;
partitions that must be read from disk are noted.
"""

from __future__ import annotations

from array import array
from typing import Any, Final, NamedTuple

from rookery import metrics
from rookery.broker.call import Call
from rookery.broker.fetchservice import StatePartition, WatchedPartition, WatchingSession
from rookery.broker.leaders import other_leader
from rookery.cluster.state import aborts
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.topics import Topic
from rookery.errors import ErrorCode
from rookery.log.read.tail import Key, TailSlice
from rookery.service.access.requesttraits import is_replica
from rookery.wire.message import Parts
from rookery.wire.messages.fetch import (
    AbortedTransaction,
    FetchRequest,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

# The maximum size of a response, whatever the client allows (Kafka's broker fetch.max.bytes).
MAX_BYTES: Final = 55 * 1024 * 1024
_NONE: Final = ErrorCode.NONE
_NO_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
# For these Kafka returns an empty list of aborted transactions, for other errors null.
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

EXAMINED: Final = metrics.counter(
    "rookery_broker_fetch_partitions_total", "Partitions that fetches have looked at."
)


class WantedPartition(NamedTuple):
    """A partition whose records must be read, from memory or from disk."""

    answer: PartitionData
    key: Key
    partition: Partition
    offset: int
    limit: int
    is_first: bool
    until: int
    """The end for readers of committed records."""
    aborted: array[int]
    """The aborted transactions those readers must skip, from the same version of the state."""
    least: int
    """The bytes that must be read regardless of the limit: the first batch is within one row."""

    def refuse(self, code: ErrorCode) -> None:
        """Answer with an error and without watermarks, as Kafka does."""
        answer = self.answer
        answer.error_code = code
        answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
        answer.aborted_transactions = None

    def give(self, records: TailSlice) -> None:
        """Add records to the response, with the aborted transactions if the client wants them."""
        answer = self.answer
        answer.records = Parts(records.parts)
        if answer.aborted_transactions is not None:
            answer.aborted_transactions = [
                AbortedTransaction(
                    producer_id=transaction.producer_id, first_offset=transaction.first_offset
                )
                for transaction in aborts.within(self.aborted, self.offset, records.next_offset)
            ]

    def available(self, limit: int) -> int:
        """Return the approximate number of bytes from the offset on, at most the limit."""
        size = 0
        bases, sizes = self.partition.base_offsets, self.partition.sizes
        for index in range(self.partition.row_of(self.offset), len(sizes)):
            if bases[index] >= self.until:
                break
            size += sizes[index]
            if size >= limit:
                return limit
        return size


class FetchPlan:
    """One look and its results."""

    __slots__ = (
        "_idle", "_is_replica", "answers", "call", "cold", "endpoints", "has_error", "is_doubtful",
        "left", "request", "sent", "session", "sightings", "size",
    )  # fmt: skip

    def __init__(self, call: Call, request: FetchRequest, session: WatchingSession) -> None:
        """Look at the partitions of a session that are not idle."""
        self.call = call
        self.request = request
        self.session = session
        self.answers: list[tuple[WatchedPartition, PartitionData]] = []
        self.sightings: list[StatePartition] = []
        """The partitions that the session does not follow yet."""
        self._idle: list[WatchedPartition] = []
        self.cold: list[WantedPartition] = []
        self.sent: list[tuple[bytes, int, int]] = []
        """Topic id, records and bytes of each read from memory."""
        self.endpoints: dict[int, NodeEndpoint] = {}
        self.left = min(request.max_bytes, MAX_BYTES, call.connection.answers.room())
        self.size = 0
        self.has_error = False
        self.is_doubtful = False
        """Whether an error may be caused by an outdated state."""
        self._is_replica = is_replica(request)
        self._look_at_all()
        if session.id:
            session.follow(self.sightings)
            session.rest(self._idle)

    def _look_at_all(self) -> None:
        topics, session = self.call.state.topics, self.session
        is_draining = self.call.services.is_draining
        by_key: dict[Any, Topic] = topics.by_id if session.uses_ids else topics.by_name
        examined = session.partitions.values() if is_draining else session.active
        EXAMINED.value += len(examined)
        for watched in examined:
            topic = by_key.get(watched.topic)
            if topic is None or not 0 <= watched.index < len(topic.partitions):
                self.is_doubtful = True
                is_id = topic is None and session.uses_ids
                unknown = (
                    ErrorCode.UNKNOWN_TOPIC_ID if is_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                self._refuse(watched, unknown)
            elif is_draining:
                self._send_on(watched, topic)
            else:
                self._look_at(watched, topic)

    def _look_at(self, watched: WatchedPartition, topic: Topic) -> None:
        partition = topic.partitions[watched.index]
        end, stable, offset = partition.next_offset, partition.last_stable_offset, watched.offset
        readable = stable if self.request.isolation_level else end
        if watched.leader_epoch > partition.leader_epoch:
            self.is_doubtful = True
            self._refuse(watched, ErrorCode.UNKNOWN_LEADER_EPOCH)
            return
        if self._is_replica:
            # Kafka's answers to a broker that is not a replica of the partition.
            is_epoch_known = watched.leader_epoch >= 0
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if is_epoch_known else _NO_LEADER
            self._refuse(watched, code)
            return
        if not partition.log_start <= offset <= end:
            self.is_doubtful |= offset > end
            self._refuse(watched, ErrorCode.OFFSET_OUT_OF_RANGE)
            return
        if watched.partition is not partition:
            self.sightings.append(StatePartition(watched, (topic.id, watched.index), partition))
        if offset >= readable and self._is_told(watched, partition):
            self._idle.append(watched)
            return
        answer = PartitionData(
            partition_index=watched.index,
            error_code=_NONE,
            high_watermark=end,
            last_stable_offset=stable,
            log_start_offset=partition.log_start,
            aborted_transactions=[] if self.request.isolation_level else None,
            records=b"",
        )
        self.answers.append((watched, answer))
        if offset < readable and (self.left > 0 or not self.size):
            self._take(answer, topic, watched)

    def _is_told(self, watched: WatchedPartition, partition: Partition) -> bool:
        """Return whether the client knows the partition's end and start."""
        return (
            self.session.is_incremental
            and watched.high_watermark == partition.next_offset
            and watched.log_start == partition.log_start
        )

    def _take(self, answer: PartitionData, topic: Topic, watched: WatchedPartition) -> None:
        """Take records from memory, or note that they must be read."""
        key, partition = (topic.id, watched.index), topic.partitions[watched.index]
        limit = min(self.left, watched.max_bytes)
        is_first = not self.size
        is_committed = self.request.isolation_level
        until = partition.last_stable_offset if is_committed else partition.next_offset
        records = self.call.services.reader.read_now(
            key, partition, watched.offset, limit, whole_first=is_first, until=until
        )
        # Rows can be removed before they are read, so values that depend on them are computed now.
        is_whole = records is None and is_first
        least = partition.sizes[partition.row_of(watched.offset)] if is_whole else 0
        wanted = WantedPartition(
            answer, key, partition, watched.offset, limit, is_first, until, partition.aborted, least
        )
        if records is None:
            self.cold.append(wanted)
            # The first batch is returned whole. Its size is not known yet, but its upper bound is.
            most = self._max_message_bytes(topic) if is_first else 0
            size = max(wanted.available(max(limit, 1)), min(least, most))
        else:
            size = records.size
            if size:
                wanted.give(records)
                self.sent.append((key[0], records.next_offset - watched.offset, size))
        self.size += size
        self.left -= size

    def _max_message_bytes(self, topic: Topic) -> int:
        return self.call.services.rules.of(self.call.state, topic).max_bytes

    def _refuse(self, watched: WatchedPartition, code: ErrorCode) -> PartitionData:
        answer = PartitionData(
            partition_index=watched.index, error_code=code, high_watermark=-1, records=b""
        )
        if code in _UNKNOWN:
            answer.aborted_transactions = []
        self.has_error = True
        self.answers.append((watched, answer))
        return answer

    def _send_on(self, watched: WatchedPartition, topic: Topic) -> None:
        """Redirect the client, since this broker is stopping."""
        answer = self._refuse(watched, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        leader = other_leader(self.call, topic, watched.index)
        if leader is not None:
            broker = leader.broker
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=broker.node_id, leader_epoch=leader.leader_epoch
            )
            self.endpoints[broker.node_id] = NodeEndpoint(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
