"""Shows clients the virtual partitions of topics: in Metadata and when topics are created."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.proxy.virtual.topicbook import TopicBook, TopicKind
from rookery.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


def show_partitions(response: MetadataResponse, book: TopicBook) -> None:
    """Replace physical partitions by virtual ones, in place.

    A virtual partition has the leader, the replicas and the error of its physical one.
    """
    for topic in response.topics:
        entry = book.find(topic.name or "")
        if entry is None or topic.error_code:
            continue
        if entry.kind is TopicKind.VIRTUAL:
            _expand(topic, book)
        else:
            topic.partitions = []
            topic.error_code = (
                ErrorCode.INVALID_TOPIC_EXCEPTION
                if entry.kind is TopicKind.REFUSED
                else ErrorCode.LEADER_NOT_AVAILABLE
            )


def _expand(topic: MetadataResponseTopic, book: TopicBook) -> None:
    rule = book.rules.find(topic.name or "")
    assert rule is not None  # noqa: S101 (its entry has one)
    remapper = rule.remapper
    rows = {row.partition_index: row for row in topic.partitions}
    if len(rows) != remapper.physical_partitions:
        # Its number of partitions has changed since it was checked.
        topic.partitions, topic.error_code = [], ErrorCode.LEADER_NOT_AVAILABLE
        return
    topic.partitions = [
        rows[remapper.virtual_to_physical(virtual).physical_partition].replace(
            partition_index=virtual
        )
        for virtual in range(remapper.virtual_partitions)
    ]
