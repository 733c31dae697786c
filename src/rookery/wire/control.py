"""Control records, which the log itself writes in batches that no consumer sees.

A control record's key is a version and a type. The value of a transaction marker begins with a
version of its own; the values of KRaft's control records have theirs as their first field. Either
way a value starts with its version, and a newer one is read as the newest that we know.
"""

from __future__ import annotations

from typing import Final

from rookery.errors import Corrupt, ProtocolError
from rookery.model.control import ControlRecordType
from rookery.wire.buffer import Buffer, FrameReader
from rookery.wire.codec import encode_bytes
from rookery.wire.message import BrokerId, Host, Message, ShortPort, Uuid, field, i16, i32, i64
from rookery.wire.protocols import versionedbytes

KEY_BYTES: Final = 4


class ControlRecordTypeSchema(Message, versions=range(1), flexible=None):
    """The key of every control record."""

    type_: i16


class EndTxnMarker(Message, versions=range(1), flexible=None):
    """A transaction ended here; the key's type is its outcome (ABORT or COMMIT)."""

    coordinator_epoch: i32  # a marker of an older coordinator than the last one is refused


class LeaderChangeMessage(Message, versions=range(2), flexible=0):
    """A new leader of the metadata quorum begins its epoch (LEADER_CHANGE).

    Versions:
        1 adds the voters' directories; Kafka 4.3 still writes 0.
    """

    version: i16
    leader_id: BrokerId
    voters: list[Voter]
    granting_voters: list[Voter]


class Voter(Message):
    """A controller that may vote."""

    voter_id: BrokerId
    voter_directory_id: Uuid = field(since=1, default=bytes(16))


class SnapshotHeaderRecord(Message, versions=range(1), flexible=0):
    """The first record of a snapshot (SNAPSHOT_HEADER)."""

    version: i16
    last_contained_log_timestamp: i64


class SnapshotFooterRecord(Message, versions=range(1), flexible=0):
    """The last record of a snapshot: nothing was cut off (SNAPSHOT_FOOTER)."""

    version: i16


class KRaftVersionRecord(Message, versions=range(1), flexible=0):
    """The level of kraft.version from here on (KRAFT_VERSION)."""

    version: i16
    k_raft_version: i16  # 0: voters are fixed by configuration; 1: voters are kept in the log


class VotersRecord(Message, versions=range(1), flexible=0):
    """The metadata quorum's voters from here on (KRAFT_VOTERS, KIP-853)."""

    version: i16
    voters: list[VoterDetails]


class VoterDetails(Message):
    """A voter, where to reach it, and what it supports."""

    voter_id: BrokerId
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    k_raft_version_feature: KRaftVersionFeature


class Endpoint(Message):
    """An address that a voter listens on."""

    name: str
    host: Host
    port: ShortPort


class KRaftVersionFeature(Message):
    """The levels of kraft.version that a voter supports."""

    min_supported_version: i16
    max_supported_version: i16


VALUES: Final[dict[ControlRecordType, type[Message]]] = {
    ControlRecordType.ABORT: EndTxnMarker,
    ControlRecordType.COMMIT: EndTxnMarker,
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}


def read_key(key: Buffer) -> ControlRecordType | None:
    """Return the type of a control record; None if the type is newer than known: skip it.

    Raises:
        Corrupt: the key is too short, or has a negative version.
    """
    if len(key) < KEY_BYTES:
        raise Corrupt(f"a control record's key has {len(key)} bytes; it needs {KEY_BYTES}")
    reader = FrameReader(key)
    version, number = reader.i16(), reader.i16()
    if version < 0:
        raise Corrupt(f"a control record's key has version {version}; versions start at 0")
    return ControlRecordType(number) if number in _NUMBERS else None


def write_key(type_: ControlRecordType) -> bytes:
    """Write the key of a control record."""
    return versionedbytes.write(ControlRecordTypeSchema(type_=type_), 0)


def read_value(type_: ControlRecordType, value: Buffer) -> Message:
    """Read what a control record says.

    Raises:
        Corrupt: the bytes are no such record.
    """
    message = VALUES[type_]
    try:
        start = versionedbytes.PREFIX_BYTES if message is EndTxnMarker else 0
        return versionedbytes.read_leniently(message, value, start)[0]
    except ProtocolError as error:
        raise Corrupt(f"a {type_.name} control record cannot be read: {error}") from error


def write_value(value: Message) -> bytes:
    """Write what a control record says; KRaft's records name their version themselves."""
    if isinstance(value, EndTxnMarker):
        return versionedbytes.write(value, 0)
    if type(value) not in VALUES.values():
        raise TypeError(f"{type(value).__name__} is not a control record")
    version: int = value.version  # type: ignore[attr-defined] # all but the marker have it
    return encode_bytes(value, version)


_NUMBERS: Final = frozenset(ControlRecordType)
