"""What a handler is given besides the request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rookery.broker.checks import Rules, rules_of
from rookery.broker.fetchservice import FetchService, Waiting
from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.producerids import ProducerIds
from rookery.broker.settings import BrokerSettings
from rookery.broker.telemetry import Telemetry
from rookery.broker.topiccache import TopicCache
from rookery.broker.topicdescription import describe
from rookery.clock import Clock, Random
from rookery.cluster.replica import Replica
from rookery.cluster.state.brokers import Broker
from rookery.cluster.state.state import State
from rookery.log.reader import Reader
from rookery.log.writer import Writer
from rookery.wire.messages.metadata import MetadataResponseTopic

if TYPE_CHECKING:
    from rookery.net.connection import Connection
    from rookery.wire.header import RequestHeader


@dataclass(slots=True)
class Services:
    """The parts of a broker that handlers use."""

    settings: BrokerSettings
    clock: Clock
    random: Random
    replica: Replica
    writer: Writer
    reader: Reader
    waiting: Waiting
    fetches: FetchService
    producer_ids: ProducerIds
    groups: GroupCoordinator
    opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held while a compressed batch is opened: what it becomes can be a thousand times larger."""
    hidden: frozenset[int] = frozenset()
    """APIs that cannot be served over what the log lies in, by key."""
    rules: TopicCache[Rules] = field(default_factory=lambda: TopicCache(rules_of))
    """What topics demand of batches, and their settings in force."""
    descriptions: TopicCache[MetadataResponseTopic] = field(
        default_factory=lambda: TopicCache(describe)
    )
    """Topics as Metadata describes them."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    node_id: int = -1
    registration: Broker | None = None
    """This broker as it registered last."""
    handover: asyncio.Event | None = None
    """While this broker leaves, produces wait for it; then other brokers lead all partitions."""
    is_draining: bool = False
    """Whether this broker has left the cluster, and sends clients to the others."""
    requests: int = 0
    """Requests that have come."""

    @property
    def state(self) -> State:
        """What the cluster has agreed on, as far as it is applied here."""
        return self.replica.state

    @property
    def brokers(self) -> list[Broker]:
        """The brokers that clients may be sent to: the live ones, or this one if there is none.

        As with Kafka, the last broker to leave still names itself. librdkafka drops all its
        addresses when it reads an empty list, and does not recover when brokers come back.
        """
        live = list(self.state.brokers.by_node.values())
        return live or ([self.registration] if self.registration is not None else [])


class Call:
    """One request: who asks, in which version, and the broker's parts."""

    __slots__ = ("connection", "header", "services")

    def __init__(self, services: Services, connection: Connection, header: RequestHeader) -> None:
        self.services = services
        self.connection = connection
        self.header = header

    @property
    def version(self) -> int:
        """The version that the client speaks."""
        return self.header.api_version

    @property
    def state(self) -> State:
        """What the cluster has agreed on, as far as it is applied here."""
        return self.services.replica.state
