"""The common part of tests of migrating groups: six partitions and their owners."""

from __future__ import annotations

import pytest

from rookery.broker.groups.settings import ConsumerSettings
from rookery.errors import ErrorCode
from rookery.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.groups.beats import Cluster, Reader
from tests.broker.groups.mixing import (
    COOPERATIVE,
    EAGER,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ClassicReader,
    Mixed,
)

AnyReader = ClassicReader | Reader
NONE = ErrorCode.NONE
REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
both = pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])


def six(**settings: object) -> Mixed:
    return Mixed(Cluster(t=6), ConsumerSettings(**settings))  # type: ignore[arg-type]  # by name


def consumer(group: Mixed, member_id: str, **wants: object) -> Reader:
    return Reader(group, member_id, subscribed_topic_names=["t"], **wants)


def settle(*readers: AnyReader) -> None:
    """Poll all readers until nothing changes; no two ever have the same partition."""
    for _ in range(20):
        for reader in readers:
            reader.step()
            check_apart(*readers)


def check_apart(*readers: AnyReader) -> None:
    owned = [place for reader in readers for place in reader.places()]
    assert len(owned) == len(set(owned)), "two own the same"


def shares(group: Mixed, *readers: AnyReader) -> list[int]:
    """Return how many each owns; all must be owned."""
    owned = frozenset(place for reader in readers for place in reader.places())
    assert owned == group.cluster.places("t")
    return [len(reader.places()) for reader in readers]


def waiting(*readers: ClassicReader) -> list[bool]:
    return [reader.is_waiting for reader in readers]


METADATA = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


def join_by(group: Mixed, protocol_type: str, metadata: bytes, member_id: str = "") -> int:
    return group.send(
        JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        ),
        2,
    )
