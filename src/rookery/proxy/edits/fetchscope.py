"""The partitions that the responses to a client's fetch session may have.

A request of a fetch session (KIP-227) names only what changes in the session, and a response only
the partitions with news. So the partitions of the session are followed from its first request on.
A connection has one session: clients open another one only instead of it.
"""

from __future__ import annotations

from rookery.errors import ProtocolError
from rookery.wire.messages.fetch import FetchRequest, FetchResponse

PartitionNames = frozenset[tuple[str | bytes, int]]
"""Partitions, by the name or id of their topic and their number."""


class FetchScope:
    """The partitions of the fetch session that a connection has opened."""

    __slots__ = ("_partitions",)

    def __init__(self) -> None:
        # None without a session.
        self._partitions: PartitionNames | None = None

    def follow(self, request: FetchRequest) -> PartitionNames | None:
        """Apply what a request changes; return the partitions that its response may have.

        Returns:
            None if the session of the request was not opened on this connection.
        """
        if request.session_epoch < 0:
            self._partitions = None
            return frozenset()
        named = frozenset(
            (topic.topic or topic.topic_id, row.partition)
            for topic in request.topics
            for row in topic.partitions
        )
        if request.session_epoch == 0:
            self._partitions = named
        elif self._partitions is not None:
            forgotten = {
                (topic.topic or topic.topic_id, number)
                for topic in request.forgotten_topics_data
                for number in topic.partitions
            }
            if forgotten or not named <= self._partitions:
                self._partitions = (self._partitions | named) - forgotten
        return self._partitions


def check_scope(partitions: PartitionNames, response: FetchResponse) -> None:
    """Refuse a response with a partition that is not in the session of its request.

    Raises:
        ProtocolError: it has one.
    """
    for topic in response.responses:
        key = topic.topic or topic.topic_id
        for row in topic.partitions:
            if (key, row.partition_index) not in partitions:
                name = key.hex() if isinstance(key, bytes) else key
                raise ProtocolError(
                    f"Fetch: the response has partition {row.partition_index} of {name}, which is"
                    " not in the session"
                )
