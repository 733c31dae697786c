"""Routes of the broker's APIs, and the `Call` that a handler receives besides the request.

    @handles(HEARTBEAT, mutates=True)
    async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse: ...

The files of `broker/apis` are scanned for handlers. The decorator ties both message types, so a
wrong one fails type checking. A handler can be a plain function that returns its answer, return a
future, or be a coroutine function.

Dispatch, ApiVersions, read-only mode and the documentation follow from the routes. Whether an API
changes anything has no default: a new handler must state it. What its clients need is a row of
`service/access/accesstable.py`.
"""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rookery.broker import apis
from rookery.broker.checks import Rules, rules_of
from rookery.broker.config.configs import TopicCache
from rookery.broker.fetchservice import FetchService, PartitionWatch
from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.producerids import ProducerIds
from rookery.broker.rulelease import RuleLease
from rookery.broker.settings import BrokerSettings
from rookery.broker.telemetry.pushedmetrics import Telemetry
from rookery.broker.tokens.delegationtokens import DelegationTokens
from rookery.broker.topicdescription import describe
from rookery.clock import Clock, Random
from rookery.cluster.agreement import SecurityAgreement
from rookery.cluster.replica import Replica
from rookery.cluster.state.brokers import LiveBroker
from rookery.cluster.state.state import State
from rookery.log.read.reader import LogReader
from rookery.log.write.writer import LogWriter
from rookery.security.access import Access
from rookery.service.access.accesstable import access_of
from rookery.service.access.guard import Guard
from rookery.service.audit.auditlog import AuditLog
from rookery.service.listen.login import LoginService
from rookery.service.quotas.clientquotas import ClientQuotas
from rookery.service.quotas.requestthrottle import RequestThrottle
from rookery.wire.message import Api, Message
from rookery.wire.messages.metadata import MetadataResponseTopic

if TYPE_CHECKING:
    from rookery.net.connection import Connection
    from rookery.wire.codec import RequestHeader


@dataclass(slots=True)
class Services:
    """The parts of a broker that handlers use."""

    settings: BrokerSettings
    clock: Clock
    random: Random
    replica: Replica
    writer: LogWriter
    reader: LogReader
    waiting: PartitionWatch
    fetches: FetchService
    producer_ids: ProducerIds
    groups: GroupCoordinator
    quotas: ClientQuotas
    delegation_tokens: DelegationTokens
    opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held while a compressed batch is decompressed, which can make it a thousand times larger."""
    hidden: frozenset[int] = frozenset()
    """The keys of APIs that this broker does not serve."""
    rules: TopicCache[Rules] = field(default_factory=lambda: TopicCache(rules_of))
    """The rules for batches of each topic, with its effective settings."""
    descriptions: TopicCache[MetadataResponseTopic] = field(
        default_factory=lambda: TopicCache(describe)
    )
    """Topic descriptions for Metadata."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    node_id: int = -1
    logins: dict[str, LoginService] = field(default_factory=dict)
    """How clients log in, by listener."""
    guard: Guard | None = None
    """Applies access rules; None if there are none."""
    agreement: SecurityAgreement | None = None
    """Knows which changes of rules and users the other brokers have applied."""
    lease: RuleLease | None = None
    """Whether the rules and users are up to date; None if nothing is decided by them."""
    audit: AuditLog | None = None
    """Records logins, denials and changes; None if there is no audit file."""
    registration: LiveBroker | None = None
    """This broker's latest registration."""
    handover: asyncio.Event | None = None
    """Produce requests wait for it while this broker leaves; then other brokers lead everything."""
    is_draining: bool = False
    """Whether this broker has left the cluster and redirects clients to the others."""
    requests: int = 0
    """The number of requests received."""

    @property
    def state(self) -> State:
        """The cluster's state, as applied by this broker."""
        return self.replica.state

    @property
    def checks_clients(self) -> bool:
        """Whether access rules or users decide which clients are served."""
        is_guarded = self.guard is not None and self.guard.policy.settings.is_enforced
        return is_guarded or any(login.settings.mechanisms for login in self.logins.values())

    @property
    def brokers(self) -> list[LiveBroker]:
        """The brokers to advertise: the live ones, or this one if there are none.

        As in Kafka, the last broker to leave still advertises itself. librdkafka drops all its
        addresses when it receives an empty list, and does not recover when brokers come back.
        """
        live = list(self.state.brokers.by_node.values())
        return live or ([self.registration] if self.registration is not None else [])


class Call:
    """One request: its connection, its header, and the broker's services."""

    __slots__ = ("connection", "header", "services", "throttle")

    def __init__(self, services: Services, connection: Connection, header: RequestHeader) -> None:
        self.services = services
        self.connection = connection
        self.header = header
        self.throttle: RequestThrottle | None = None
        """Applies the client's quotas; None if the cluster has none."""

    @property
    def version(self) -> int:
        """The API version of the request."""
        return self.header.api_version

    @property
    def state(self) -> State:
        """The cluster's state, as applied by this broker."""
        return self.services.replica.state

    def reachable(self, broker: LiveBroker | None) -> LiveBroker | None:
        """Return a broker with the address of the listener that this client has connected to.

        None if the broker has no such listener, or if there is no broker.
        """
        return broker.at(self.connection.session.listener) if broker is not None else None

    @property
    def brokers(self) -> list[LiveBroker]:
        """The brokers to advertise to this client, with addresses that it can reach."""
        brokers = map(self.reachable, self.services.brokers)
        return [broker for broker in brokers if broker is not None]


Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)

Handle = Callable[[Call, Req], "Awaitable[Res | None] | Res | None"]
"""Handles a request; returns None if there is no response."""


class Route(NamedTuple):
    """An API, the served versions, its handler, and the handler's properties."""

    api: Api[Any, Any]
    versions: range
    handle: Handle[Any, Any]
    mutates: bool
    """Whether a request can change the cluster's state or the log."""
    is_served_read_only: bool
    """Whether a read-only broker advertises it."""
    touches: tuple[Access, ...]
    """The operations that a client needs, and on which resources."""


_routes: dict[int, Route] = {}


def handles(
    api: Api[Req, Res],
    versions: range | None = None,
    *,
    mutates: bool,
    is_served_read_only: bool = False,
) -> Callable[[Handle[Req, Res]], Handle[Req, Res]]:
    """Register a function as the handler of an API.

    Args:
        api: the API.
        versions: the served versions; None for all.
        mutates: whether a request can change the cluster's state or the log.
        is_served_read_only: whether a read-only broker serves it although it mutates, because the
            changes stay in memory there or because it is refused by other means.
    """

    def note(function: Handle[Req, Res]) -> Handle[Req, Res]:
        if api.key in _routes:
            raise TypeError(f"{api.name} has two handlers")
        _routes[api.key] = Route(
            api=api,
            versions=versions or api.versions,
            handle=function,
            mutates=mutates,
            is_served_read_only=is_served_read_only or not mutates,
            touches=access_of(api),
        )
        return function

    return note


@cache
def routes() -> dict[int, Route]:
    """Return all routes by API key."""
    for module in pkgutil.iter_modules(apis.__path__):
        import_module(f"{apis.__name__}.{module.name}")
    return dict(sorted(_routes.items()))


def hidden_when_read_only() -> frozenset[int]:
    """Return the keys of the APIs that a read-only broker does not serve."""
    return frozenset(key for key, route in routes().items() if not route.is_served_read_only)
