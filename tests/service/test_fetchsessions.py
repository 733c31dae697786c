"""Fetch sessions: partitions by reference, epochs, and the bound on their number."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.clock import SystemRandom
from rookery.errors import ApiError, ErrorCode
from rookery.service.fetchsessions import (
    FetchSession,
    FetchSessions,
    FetchSessionSettings,
    SessionPartition,
    SessionPartitions,
    TopicKey,
)
from rookery.testing.clock import ManualClock
from rookery.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

Session = FetchSession[SessionPartition]


class Factory:
    def partition(self, topic: TopicKey, part: FetchPartition) -> SessionPartition:
        return SessionPartition(topic, part)

    def session(
        self,
        session_id: int,
        partitions: SessionPartitions[SessionPartition],
        now_ms: int,
        *,
        uses_ids: bool,
    ) -> Session:
        return FetchSession(session_id, partitions, now_ms, uses_ids=uses_ids)


class Server:
    """The sessions of a server that has room for three."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sessions = FetchSessions(
            Factory(),
            self.clock,
            SystemRandom(),
            FetchSessionSettings(max_sessions=3, eviction_ms=1000),
        )

    def fetch(
        self, session_id: int, epoch: int, partitions: dict[int, int] | None = None, **rest: Any
    ) -> Session:
        """Fetch partitions of one topic, each from an offset on."""
        parts = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1)
            for index, offset in (partitions or {}).items()
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic="t", partitions=parts)] if parts else [],
            **rest,
        )
        return self.sessions.resume(request, 12)

    def open(self, partitions: int = 1) -> int:
        return self.fetch(0, 0, dict.fromkeys(range(partitions), 0)).id


@pytest.fixture
def server() -> Server:
    return Server()


def offsets(session: Session) -> dict[int, int]:
    return {partition.index: partition.offset for partition in session.partitions.values()}


def test_later_fetches_name_only_changes(server: Server) -> None:
    first = server.fetch(0, 0, {0: 5, 1: 6})

    second = server.fetch(first.id, 1, {1: 7, 2: 8})

    assert second is first
    assert second.is_incremental
    assert offsets(second) == {0: 5, 1: 7, 2: 8}


def test_forgotten_partitions_are_removed_and_the_last_one_ends_the_session(server: Server) -> None:
    session_id = server.open(2)

    rest = server.fetch(
        session_id, 1, forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[0])]
    )
    assert offsets(rest) == {1: 0}
    none = server.fetch(
        session_id, 2, forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1])]
    )

    assert (none.id, rest.is_closed, len(server.sessions)) == (0, True, 0)


def test_idle_partition_is_active_again_when_it_is_named_or_the_isolation_level_changes(
    server: Server,
) -> None:
    session = server.fetch(0, 0, {0: 0, 1: 0})
    first, second = session.partitions.values()
    session.rest([first, second])
    assert list(session.active) == []

    server.fetch(session.id, 1, {1: 3})
    assert list(session.active) == [second]
    server.fetch(session.id, 2, isolation_level=1)

    assert set(session.active) == {first, second}


def test_partition_with_records_is_served_last_in_the_next_fetch(server: Server) -> None:
    session = server.fetch(0, 0, {0: 0, 1: 0, 2: 0})
    first, second, third = session.partitions.values()

    session.rotate([first])

    assert list(session.active) == [second, third, first]


def test_watermarks_are_reported_once(server: Server) -> None:
    session = server.fetch(0, 0, {0: 0})
    [partition] = session.partitions.values()
    answers = [(5, 0), (5, 0), (5, 1), (6, 1)]
    assert [session.note(partition, *answer) for answer in answers] == [True, False, True, True]


@pytest.mark.parametrize(
    ("session_shift", "epoch", "code"),
    [
        (0, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_wrong_id_or_epoch_is_refused_and_the_session_stays(
    server: Server, session_shift: int, epoch: int, code: ErrorCode
) -> None:
    session_id = server.open()

    with pytest.raises(ApiError) as caught:
        server.fetch(session_id ^ session_shift, epoch)

    assert caught.value.code is code
    assert server.fetch(session_id, 1).id == session_id


def test_new_session_waits_until_another_is_idle(server: Server) -> None:
    first, second, _ = (server.open() for _ in range(3))
    assert server.open() == 0
    server.clock.advance(999)
    server.fetch(first, 1)
    assert server.open() == 0
    server.clock.advance(1)
    assert server.open() > 0
    assert (len(server.sessions), server.sessions.evicted) == (3, 1)
    assert server.fetch(first, 2).partitions
    with pytest.raises(ApiError):
        server.fetch(second, 1)


def test_larger_session_takes_the_place_of_a_smaller_one(server: Server) -> None:
    ids = [server.open(3), server.open(2), server.open(3)]
    server.clock.advance(999)
    for session_id in ids:
        server.fetch(session_id, 1)
    assert server.open(5) == 0
    server.clock.advance(1)
    for session_id in ids:
        server.fetch(session_id, 2)
    assert server.open(2) == 0
    assert server.open(3) > 0
    with pytest.raises(ApiError):
        server.fetch(ids[1], 3)


def test_epochs_wrap_around(server: Server) -> None:
    session = server.fetch(0, 0, {0: 0})
    session.epoch = 2**31 - 1
    server.fetch(session.id, 2**31 - 1)
    assert server.fetch(session.id, 1).partitions


def test_empty_fetch_opens_no_session(server: Server) -> None:
    assert server.open(0) == 0
