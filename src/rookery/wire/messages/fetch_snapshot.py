"""FetchSnapshot (key 59): a replica of the metadata log fetches what the log has shed (KIP-630).

A snapshot holds the state up to some offset; it comes in pieces, like a file, and what follows it
is fetched from the log as usual.

Versions:
    1: names log directories and endpoints, as voters may come and go (KIP-853).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    BrokerId,
    ClusterId,
    Host,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    Records,
    ShortPort,
    TopicName,
    Uuid,
    field,
    i32,
    i64,
)


class FetchSnapshotRequest(Message):
    """The replica that asks, and the pieces that it asks for."""

    cluster_id: ClusterId | None = field(tag=0, default=None)
    replica_id: BrokerId = -1
    max_bytes: i32 = 2147483647
    topics: list[TopicSnapshot]


class TopicSnapshot(Message):
    """The snapshots wanted in one topic; today only `__cluster_metadata` has any."""

    name: TopicName
    partitions: list[PartitionSnapshot]


class PartitionSnapshot(Message):
    """A snapshot, and from which byte on."""

    partition: PartitionId
    current_leader_epoch: LeaderEpoch
    snapshot_id: SnapshotId
    position: i64  # in bytes
    replica_directory_id: Uuid = field(since=1, tag=0, default=ZERO_UUID)


class SnapshotId(Message):
    """The end of a snapshot: the offset after its last record, and that record's epoch."""

    end_offset: Offset
    epoch: LeaderEpoch


class FetchSnapshotResponse(Message):
    """The pieces."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    topics: list[TopicSnapshotPiece]
    node_endpoints: list[NodeEndpoint] = field(since=1, tag=0, factory=list)


class TopicSnapshotPiece(Message):
    """The pieces in one topic."""

    name: TopicName
    partitions: list[PartitionSnapshotPiece]


class PartitionSnapshotPiece(Message):
    """One piece; it may begin and end within a batch."""

    index: PartitionId
    error_code: ErrorCode
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch | None = field(tag=0, default=None)
    size: i64  # of the whole snapshot, in bytes
    position: i64  # of this piece, in bytes
    unaligned_records: Records


class LeaderIdAndEpoch(Message):
    """The leader that should be asked instead."""

    leader_id: BrokerId  # -1: none
    leader_epoch: LeaderEpoch


class NodeEndpoint(Message):
    """Where a leader named above can be reached."""

    node_id: BrokerId
    host: Host
    port: ShortPort


def refuse(request: FetchSnapshotRequest, code: ErrorCode) -> FetchSnapshotResponse:
    """Answer with the code and no pieces."""
    return FetchSnapshotResponse(error_code=code, topics=[])


FETCH_SNAPSHOT = Api(
    key=59,
    request=FetchSnapshotRequest,
    response=FetchSnapshotResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
)
