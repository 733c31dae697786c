"""Cluster logs of past releases: entries, and the states that those releases computed from them.

Run as a program it records the log of this program's feature level. A file that exists is never
recorded again: see docs/designs/0010-digests-and-upgrades.md.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from random import Random
from struct import Struct
from typing import NamedTuple

from rookery.cluster.entry import EVENTS, EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import BrokerRegistered, EndpointRow
from rookery.cluster.events.groupevents import GroupChanged
from rookery.cluster.events.importevents import SegmentsImported
from rookery.cluster.events.logevents import RowsLost
from rookery.cluster.events.securityevents import (
    AclFilterRow,
    AclRow,
    AclsCreated,
    AclsDeleted,
    QuotaChange,
    QuotaEntityPart,
    QuotasChanged,
    ScramChange,
    ScramCredentialsChanged,
)
from rookery.cluster.events.sinkevents import (
    SinkCommitted,
    SinkForgotten,
    SinkPartStaged,
    StagedRun,
)
from rookery.cluster.events.tokenevents import (
    DelegationTokenCreated,
    DelegationTokenExpired,
    DelegationTokenRenewed,
    DelegationTokenRevoked,
)
from rookery.cluster.state.groups import Group
from rookery.cluster.state.images.image import write_image
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.cluster.state.state import FEATURE_LEVEL, State
from rookery.testing.messages import random_message
from rookery.wire.message import Message
from tests.cluster.histories import Historian

_FOLDER = Path(__file__).parent
_SIZE = Struct("<I")
_LENGTH = 1_500
_SNAPSHOT = 500


class Recording(NamedTuple):
    """A log, and the images of its state after the 500th and after the last entry."""

    snapshot: bytes
    last: bytes
    entries: list[bytes]


def load(level: int) -> Recording:
    """Read what a program of a feature level has recorded."""
    data, blobs = gzip.decompress(_file(level).read_bytes()), []
    while data:
        [size] = _SIZE.unpack_from(data)
        blobs.append(data[_SIZE.size : _SIZE.size + size])
        data = data[_SIZE.size + size :]
    return Recording(blobs[0], blobs[1], blobs[2:])


def record(level: int, length: int = _LENGTH) -> Recording:
    """Make up a log with every kind of event."""
    historian, state, random = Historian(level, level), State(), Random(level)
    entries: list[bytes] = []
    snapshot = b""
    for number in range(1, length + 1):
        is_ours = number % 5 == 0 and bool(state.brokers.sequences)
        data = _rare_entry(state, random) if is_ours else historian.entry(state)
        entry = read_entry(number, data)
        state.apply(number, entry, read_events(number, entry))
        entries.append(data)
        if number == _SNAPSHOT:
            snapshot = write_image(state)
    return Recording(snapshot, write_image(state), entries)


def _rare_entry(state: State, random: Random) -> bytes:
    """Return an entry of events that histories do not have."""
    incarnation = random.choice(sorted(state.brokers.sequences))
    sequence = state.brokers.sequences[incarnation] + 1
    writer = EntryAuthor(incarnation, sequence, 1_700_000_000_000, state.applied, state.digest)
    return write_entry(writer, [_rare_event(state, random) for _ in range(3)])


def _rare_event(state: State, random: Random) -> Message:
    makers = [_sink_event, _sink_event, _log_event, _any_event]
    if state.feature_level >= SECURITY:
        makers += [_rule_event, _account_event, _token_event, _registration]
    return random.choice(makers)(state, random)


def _sink_event(state: State, random: Random) -> Message:
    batch = random.randrange(40)
    if random.random() < 0.02:
        return SinkForgotten(sink_id="s")
    if random.random() < 0.5:
        return SinkCommitted(
            sink_id="s", query_id="q", batch_id=batch, object_ids=[*state.sinks.staged][:1],
            source_offsets="o", takes_over=random.random() < 0.5,
        )  # fmt: skip
    run = StagedRun(topic_id=_topic(state, random), partition=0, size=9, records=3, max_timestamp=1)
    identity = 5 << 24 | 1 << 23 | random.randrange(6)
    return SinkPartStaged(
        sink_id="s", query_id="q", batch_id=batch, object_id=identity, part=0, parts=1,
        position=7, runs=[run],
    )  # fmt: skip


def _log_event(state: State, random: Random) -> Message:
    topic_id = _topic(state, random)
    partition = state.topics.partition(topic_id, 0)
    choice = random.randrange(3)
    if choice == 0:
        return SegmentsImported(topic_id=topic_id, partition=0, base_offset=0, segments=[])
    if choice == 1:
        bases = list(partition.base_offsets[:1]) if partition else [0]
        return RowsLost(topic_id=topic_id, partition=0, base_offsets=bases)
    group = random.choice([*state.groups, Group("g")])
    return GroupChanged(group_id=group.id, epoch=group.epoch, version=group.version, change=b"c")


def _rule_event(_state: State, random: Random) -> Message:
    name, principal = random.choice(("a", "ab", "*")), random.choice(("User:u", "User:*"))
    pattern = random.choice((3, 4))
    if random.random() < 0.7:
        rule = AclRow(
            resource_type=2, pattern_type=pattern, resource_name=name, principal=principal,
            host="*", operation=random.choice((3, 4)), permission=random.choice((2, 3)),
        )  # fmt: skip
        return AclsCreated(rules=[rule])
    chosen = AclFilterRow(
        resource_type=1, pattern_type=random.choice((1, 2, 3)), resource_name=name,
        principal=random.choice((None, principal)), host=None, operation=3, permission=1,
    )  # fmt: skip
    return AclsDeleted(filters=[chosen])


def _account_event(_state: State, random: Random) -> Message:
    user = random.choice(("u", "v"))
    if random.random() < 0.5:
        change = ScramChange(
            mechanism=random.choice((1, 2)), iterations=4096,
            salt=random.choice((b"", b"salt")), stored_key=b"stored", server_key=b"server",
        )  # fmt: skip
        return ScramCredentialsChanged(user=user, changes=[change])
    limit = QuotaChange(
        key=random.choice(("producer_byte_rate", "consumer_byte_rate")),
        value=float(random.randrange(9)), is_removed=random.random() < 0.3,
    )  # fmt: skip
    parts = [QuotaEntityPart(entity_type="user", name=random.choice((None, user)))]
    if random.random() < 0.5:
        parts.append(QuotaEntityPart(entity_type="client-id", name="c"))
    return QuotasChanged(entity=parts, changes=[limit])


def _token_event(state: State, random: Random) -> Message:
    token_id, now_ms = random.choice("abc"), random.randrange(100)
    known = state.security.tokens.get(token_id)
    principal = random.choice(("User:u", "User:v", "User:w"))
    if known is None or random.random() < 0.1:
        return DelegationTokenCreated(
            token_id=token_id, owner="User:u", requester=principal, renewers=["User:v"],
            issued_ms=now_ms, expires_ms=now_ms + 30, max_ms=now_ms + 50,
        )  # fmt: skip
    choice = random.randrange(4)
    if choice == 0:
        expires_ms = random.choice((known.expires_ms, now_ms))
        return DelegationTokenExpired(token_id=token_id, expires_ms=expires_ms)
    if choice == 1:
        expires_ms = random.choice((-1, now_ms + 10))
        return DelegationTokenRevoked(
            token_id=token_id, principal=principal, now_ms=now_ms, expires_ms=expires_ms
        )
    return DelegationTokenRenewed(
        token_id=token_id, principal=principal, now_ms=now_ms, expires_ms=now_ms + 20
    )


def _registration(_state: State, random: Random) -> Message:
    rows = [
        EndpointRow(listener=name, protocol=protocol, host="host", port=9000 + protocol)
        for protocol, name in enumerate(("internal", "external"))
    ]
    node = random.choice((1, 2, 3))
    return BrokerRegistered(
        process_id=random.randbytes(16), node_id=node, host="host", port=9092, endpoints=rows
    )


def _any_event(_state: State, random: Random) -> Message:
    kind = random.choice([kind for kind in EVENTS.values() if kind.__name__ not in _LEVELS])
    assert kind.VERSIONS is not None
    return random_message(kind, kind.VERSIONS[-1], random)


def _topic(state: State, random: Random) -> bytes:
    return random.choice([*state.topics.by_id, bytes(16)])


_LEVELS = ("ClusterCreated", "FeatureLevelRaised", "PartitionsAdded", "TopicCreated")


def _file(level: int) -> Path:
    return _FOLDER / f"clusterlog-{level}.bin.gz"


if __name__ == "__main__":
    file = _file(FEATURE_LEVEL)
    if file.exists():
        sys.exit(f"{file} exists: a level's log is recorded once")
    made = record(FEATURE_LEVEL)
    blobs = (made.snapshot, made.last, *made.entries)
    file.write_bytes(
        gzip.compress(b"".join(_SIZE.pack(len(blob)) + blob for blob in blobs), mtime=0)
    )
