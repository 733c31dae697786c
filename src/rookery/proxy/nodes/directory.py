"""The upstream's topology and the instances, which all clients of a virtual cluster share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from rookery.clock import Clock, Random
from rookery.errors import Unavailable
from rookery.model.address import Address
from rookery.net.upstream import Upstream
from rookery.proxy.nodes.fetchbuffer import NodePartition
from rookery.proxy.nodes.instances import InstanceList
from rookery.proxy.nodes.topology import (
    NO_BROKER,
    CoordinatorCache,
    PartitionLeadership,
    UpstreamTopology,
    topic_key,
)
from rookery.proxy.nodes.writeorder import MOVED
from rookery.service.fetchsessions import (
    FetchSession,
    FetchSessions,
    SessionPartitions,
    TopicKey,
)
from rookery.wire.messages.fetch import FetchPartition, FetchResponse
from rookery.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from rookery.wire.messages.metadata import MetadataResponse

# The minimum time between two lookups of one thing.
_LOOKUP_MS: Final = 100
_MAX_LOOKUPS: Final = 10_000

NodeSession = FetchSession[NodePartition]


class NodeSessionFactory:
    """Creates fetch sessions."""

    def partition(self, topic: TopicKey, part: FetchPartition) -> NodePartition:
        """Create a partition that a session names for the first time."""
        return NodePartition(topic, part)

    def session(
        self,
        session_id: int,
        partitions: SessionPartitions[NodePartition],
        now_ms: int,
        *,
        uses_ids: bool,
    ) -> NodeSession:
        """Create a session; `session_id` is 0 for a single fetch."""
        return FetchSession(session_id, partitions, now_ms, uses_ids=uses_ids)


class NodeDirectory:
    """The upstream of one virtual cluster, as broker nodes see it."""

    def __init__(
        self,
        instances: InstanceList,
        connect: Callable[[Address], Awaitable[Upstream]],
        connect_any: Callable[[], Awaitable[Upstream]],
        clock: Clock,
        random: Random,
    ) -> None:
        """Create it without a request to the upstream.

        Args:
            instances: the nodes that clients see; their addresses depend on the listener.
            connect: connects to a broker.
            connect_any: connects to any broker.
            clock: times sessions and lookups.
            random: numbers fetch sessions.
        """
        self.instances = instances
        self.topology = UpstreamTopology()
        self.coordinators = CoordinatorCache()
        self.sessions: FetchSessions[NodePartition, NodeSession] = FetchSessions(
            NodeSessionFactory(), clock, random
        )
        self.clock = clock
        self._connect = connect
        self._connect_any = connect_any
        self._looked_up: OrderedDict[Hashable, int] = OrderedDict()

    async def open(self, broker_id: int) -> Upstream:
        """Connect to a broker; to any of them for `NO_BROKER`.

        Raises:
            Unavailable: it cannot be reached, or is not known.
            ConfigError: its certificate is refused.
            ApiError: it refuses the login.
        """
        if broker_id == NO_BROKER:
            return await self._connect_any()
        where = self.topology.brokers.get(broker_id)
        if where is None:
            raise Unavailable(f"the upstream does not list its broker {broker_id} any more")
        return await self._connect(where)

    def may_look_up(self, what: Hashable) -> bool:
        """Return whether something may be looked up now, and record the time."""
        now_ms = self.clock.monotonic_ms()
        last_ms = self._looked_up.get(what)
        if last_ms is not None and now_ms - last_ms < _LOOKUP_MS:
            return False
        self._looked_up[what] = now_ms
        self._looked_up.move_to_end(what)
        if len(self._looked_up) > _MAX_LOOKUPS:
            self._looked_up.popitem(last=False)
        return True

    def learn_metadata(self, response: MetadataResponse) -> None:
        """Learn from an upstream's answer to Metadata, before it is rewritten for a client."""
        self.topology.learn(response)

    def learn_coordinators(
        self, request: FindCoordinatorRequest, response: FindCoordinatorResponse
    ) -> None:
        """Learn from an upstream's answer to FindCoordinator, before it is rewritten."""
        rows: list[tuple[str, Coordinator | FindCoordinatorResponse]] = [
            (row.key, row) for row in response.coordinators
        ]
        for key, row in rows or [(request.key, response)]:
            if row.error_code or row.node_id == NO_BROKER:
                self.coordinators.forget(request.key_type, key)
                continue
            self.topology.brokers.setdefault(row.node_id, Address(row.host, row.port))
            self.coordinators.learn(request.key_type, key, row.node_id)

    def learn_fetched(self, response: FetchResponse) -> None:
        """Learn the new leaders that an answer to Fetch names."""
        places = {each.node_id: Address(each.host, each.port) for each in response.node_endpoints}
        for topic in response.responses:
            key = topic_key(topic.topic, topic.topic_id)
            for row in topic.partitions:
                hint = row.current_leader
                if row.error_code in MOVED and hint is not None:
                    if hint.leader_id in places:
                        leadership = PartitionLeadership(hint.leader_id, hint.leader_epoch)
                        where = places[hint.leader_id]
                        self.topology.learn_leader(key, row.partition_index, leadership, where)
                    else:
                        self.topology.doubt(key)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic by its id; None if it is not known."""
        known = self.topology.find(topic_id)
        return None if known is None else known.name
