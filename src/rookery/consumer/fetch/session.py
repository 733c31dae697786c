"""Fetch sessions (KIP-227): a broker remembers the request, and only changes are sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rookery.client.connect.metadata import PartitionLeader
from rookery.consumer.fetch.source import Want
from rookery.errors import ErrorCode
from rookery.model.partition import TopicPartition
from rookery.model.uuid import ZERO
from rookery.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

_MAX_EPOCH: Final = 2**31 - 1
_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class _RequestedPartition(NamedTuple):
    want: Want
    current_epoch: int
    topic_id: bytes


class Session:
    """The fetch session with one broker."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[TopicPartition, _RequestedPartition] = {}

    def request(self, wants: Sequence[Want], located: Sequence[PartitionLeader]) -> FetchRequest:
        """Build the request: the changes since the last one, or a full request."""
        asked = {
            want.place: _RequestedPartition(want, row.leader_epoch, row.topic_id)
            for want, row in zip(wants, located, strict=True)
        }
        known = self._known if self._id else {}
        changed = [row for place, row in asked.items() if known.get(place) != row]
        forgotten = [row for place, row in known.items() if place not in asked]
        self._known = asked
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=_topics(changed),
            forgotten_topics_data=_list_forgotten(forgotten),
        )

    def on_answer(self, response: FetchResponse) -> bool:
        """Update the session from a response; return whether it is lost and must start again."""
        if response.error_code in _LOST:
            self.reset()
            return True
        if response.session_id == 0:
            self.reset()  # the broker has no room for another session
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
            self._id = response.session_id
        return False

    def reset(self) -> None:
        """Start a new session: an unreachable broker may or may not have received our request."""
        self._id = self._epoch = 0
        self._known = {}


def _topics(rows: Iterable[_RequestedPartition]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for want, epoch, topic_id in rows:
        name = want.place.topic
        if name not in topics:
            topics[name] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
        topics[name].partitions.append(
            FetchPartition(
                partition=want.place.partition,
                current_leader_epoch=epoch,
                fetch_offset=want.offset,
                last_fetched_epoch=want.leader_epoch,
                partition_max_bytes=want.max_bytes,
            )
        )
    return list(topics.values())


def _list_forgotten(rows: Iterable[_RequestedPartition]) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for want, _, topic_id in rows:
        name = want.place.topic
        if name not in topics:
            topics[name] = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
        topics[name].partitions.append(want.place.partition)
    return list(topics.values())


def has_ids(located: Sequence[PartitionLeader]) -> bool:
    """Return whether all topics can be requested by id."""
    return all(row.topic_id != ZERO for row in located)
