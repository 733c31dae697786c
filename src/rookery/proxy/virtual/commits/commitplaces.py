"""Where the committed offsets of virtual partitions are kept."""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.errors import ApiError, ErrorCode
from rookery.model.virtual import NO_OFFSET
from rookery.proxy.virtual.topicbook import TopicKind
from rookery.proxy.virtual.virtualfetch import refusal_of
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.messages.offset_commit import OffsetCommitRequest
from rookery.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

FENCE_OFFSET: Final = 0
"""Committed on the real group. Without the proxy, a group would begin there again."""

PlaceKey = tuple[str, int]
"""A topic, and a partition as the client names it."""


class CommitPlace(NamedTuple):
    """Where the offset of a virtual partition is kept."""

    topic: str
    physical: int
    slot: int


def find_places(
    topics: VirtualTopics, request: OffsetCommitRequest | TxnOffsetCommitRequest
) -> tuple[dict[PlaceKey, CommitPlace], dict[PlaceKey, ErrorCode]]:
    """Return the places of virtual partitions, and the codes of those that are refused."""
    places: dict[PlaceKey, CommitPlace] = {}
    codes: dict[PlaceKey, ErrorCode] = {}
    for topic in request.topics:
        entry = topics.book.find(topic.name)
        if entry is None:
            continue
        for part in topic.partitions:
            key = topic.name, part.partition_index
            if entry.kind is not TopicKind.VIRTUAL:
                codes[key] = refusal_of(entry)
                continue
            remapper = entry.rule.remapper
            if not NO_OFFSET <= part.committed_offset <= remapper.offset_range:
                codes[key] = ErrorCode.OFFSET_OUT_OF_RANGE
                continue
            try:
                physical, slot = remapper.virtual_to_physical(part.partition_index)
            except ApiError as error:
                codes[key] = error.code
            else:
                places[key] = CommitPlace(topic.name, physical, slot)
    return places, codes
