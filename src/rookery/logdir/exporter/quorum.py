"""Writes `__cluster_metadata-0` as the log of a single-node quorum after a clean shutdown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rookery.formats.kraft.entries import (
    METADATA_FOLDER,
    METADATA_TOPIC_ID,
    pack_batch,
    pack_control,
    version_for,
)
from rookery.formats.kraft.quorum import QUORUM_STATE, QuorumState, format_quorum_state
from rookery.formats.kraft.snapshots import SnapshotName, pack_snapshot
from rookery.formats.logfile.checkpoints import LoggedEpoch
from rookery.formats.logfile.names import BOOTSTRAP
from rookery.logdir.exporter.logs import PartitionExporter
from rookery.model.address import Address
from rookery.model.control import ControlRecordType
from rookery.wire.control import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    Voter,
    VoterDetails,
    VotersRecord,
)
from rookery.wire.kraft.cluster import FeatureLevelRecord
from rookery.wire.message import Message

METADATA_VERSION: Final = 25
"""4.0-IV3: every Kafka 4 can start with it; `kafka-features upgrade` raises it."""
FEATURES: Final = {
    "metadata.version": METADATA_VERSION,
    "group.version": 1,
    "transaction.version": 2,
}
_EPOCH: Final = 1
_RECORDS: Final = 500


def write_metadata(
    path: Path,
    node_id: int,
    directory_id: bytes,
    controller: Address,
    messages: Iterable[Message],
    now_ms: int,
) -> None:
    """Write the cluster's metadata into a log directory.

    Args:
        path: the log directory.
        node_id: the only controller.
        directory_id: the directory's own id.
        controller: the address of the controller's listener CONTROLLER.
        messages: all records except the features.
        now_ms: the current time.
    """
    voters = _voters(node_id, directory_id, controller)
    features = [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in FEATURES.items()
    ]
    log = PartitionExporter(path / METADATA_FOLDER, 0)
    log.write(pack_control(_first(node_id, voters), 0, _EPOCH, now_ms))
    rows = [(message, version_for(message, METADATA_VERSION)) for message in (*features, *messages)]
    for at in range(0, len(rows), _RECORDS):
        log.write(pack_batch(rows[at : at + _RECORDS], log.end_offset, _EPOCH, now_ms))
    log.finish(METADATA_TOPIC_ID, [LoggedEpoch(_EPOCH, 0)], log.end_offset)
    begin = pack_snapshot([], timestamp=now_ms, kraft_version=1, voters=voters)
    (log.folder / SnapshotName(0, 0).text).write_bytes(begin)
    state = QuorumState(leader_epoch=_EPOCH, leader_id=node_id)
    (log.folder / QUORUM_STATE).write_text(format_quorum_state(state))
    levels = [(feature, version_for(feature, METADATA_VERSION)) for feature in features]
    (path / BOOTSTRAP).write_bytes(pack_snapshot(levels))


def _voters(node_id: int, directory_id: bytes, controller: Address) -> VotersRecord:
    return VotersRecord(
        version=0,
        voters=[
            VoterDetails(
                voter_id=node_id,
                voter_directory_id=directory_id,
                endpoints=[Endpoint(name="CONTROLLER", host=controller.host, port=controller.port)],
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                ),
            )
        ],
    )


def _first(node_id: int, voters: VotersRecord) -> list[tuple[ControlRecordType, Message]]:
    """Return the first records of a new quorum leader."""
    voter = Voter(voter_id=node_id)
    change = LeaderChangeMessage(
        version=0, leader_id=node_id, voters=[voter], granting_voters=[voter]
    )
    version = KRaftVersionRecord(version=0, k_raft_version=1)
    return [
        (ControlRecordType.LEADER_CHANGE, change),
        (ControlRecordType.KRAFT_VERSION, version),
        (ControlRecordType.KRAFT_VOTERS, voters),
    ]
