"""One client of broker nodes, and its connections to the brokers of the upstream.

A request is decoded, passes the filters, and is sent to the brokers that answer its parts. Requests
are sent in their order; while something must be looked up for one of them, later ones wait. Their
answers are joined, and leave in the order of the requests.

If a broker fails, its part of the request fails with an error that clients retry. Where no answer
can say that, the client's connection is closed, as when a broker fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any, Protocol

from rookery.client.connect.versions import Versions
from rookery.errors import ApiError, ErrorCode, ProtocolError
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.proxy.answerroom import PartRoom
from rookery.proxy.apiversions import note_software, refuse_versions
from rookery.proxy.clientgate import ClientGate, GateReason
from rookery.proxy.filteredlink import FilteredLink, FilterTarget
from rookery.proxy.linkstate import LinkEvent, LinkStage, LinkState
from rookery.proxy.nodes.backends import BackendPool
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.fetchrelay import FetchRelay
from rookery.proxy.nodes.lookup import MissingPlaces, find_missing, look_up
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.nodes.noderouter import NodeRouter
from rookery.proxy.nodes.nodeversions import NodeVersions
from rookery.proxy.nodes.nodeview import NodeView
from rookery.proxy.nodes.producerelay import ProduceRelay, UnconfirmedWrites
from rookery.proxy.nodes.routes import RouteKind, route_of
from rookery.proxy.passage import Passage, PassageTable
from rookery.proxy.virtual.virtuallink import VirtualLink
from rookery.proxy.virtual.virtualproduce import VirtualProduce
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.buffer import Buffer, join_parts
from rookery.wire.codec import API_VERSIONS_KEY, peek, read_request, response_frame
from rookery.wire.frame import Frame
from rookery.wire.message import Api, Message, Request, Response
from rookery.wire.messages.api_versions import ApiVersionsRequest
from rookery.wire.messages.find_coordinator import FindCoordinatorResponse
from rookery.wire.messages.metadata import MetadataResponse


class NodeTarget(FilterTarget, Protocol):
    """The part of the virtual cluster that a link uses."""

    passages: PassageTable
    request_options: CallOptions
    """For requests that the broker answers at once, or after the time that they name."""
    slow_options: CallOptions
    """For requests that wait for other clients."""
    one_way_options: CallOptions
    """For requests without a response."""


class NodeLink:
    """A client's connection, and the connections to brokers that belong to it."""

    def __init__(
        self,
        connection: Connection,
        target: NodeTarget,
        directory: NodeDirectory,
        versions: NodeVersions,
        view: NodeView,
        virtual_topics: VirtualTopics | None = None,
    ) -> None:
        """Prepare a link; it connects to brokers as requests need them.

        Args:
            connection: the connection of the client.
            target: the virtual cluster.
            directory: the upstream.
            versions: the versions that clients may use.
            view: shows the instances, at the addresses of the client's listener.
            virtual_topics: the topics with virtual partitions, if there can be any.
        """
        self.state = LinkState()
        self.node_id = None
        self.target = target
        self._connection = connection
        self._directory = directory
        self._versions = versions
        self._view = view
        self._gate = ClientGate(connection)
        self._backends = BackendPool(
            directory.open,
            lambda is_full: self._gate.set(GateReason.FULL, is_closed=is_full),
            PartRoom(connection).receive,
        )
        self._filters = FilteredLink(connection, target, directory.instances.own_id, self._gate)
        self._router = NodeRouter(directory, self._backends)
        self._unconfirmed = UnconfirmedWrites()
        self._produces = ProduceRelay(directory, self._backends, self._unconfirmed)
        self._fetches = FetchRelay(directory, self._backends, connection, self._ask_any)
        self._virtual = None if virtual_topics is None else self._make_virtual(virtual_topics)
        connection.when_lost(self._lose_client)
        connection.when_stuck(lambda is_stuck: self._backends.pause(is_paused=is_stuck))

    def _make_virtual(self, topics: VirtualTopics) -> VirtualLink:
        """Return what serves the topics with virtual partitions."""
        produces = VirtualProduce(
            topics, self.target, self._directory, self._backends, self._unconfirmed
        )
        return VirtualLink(
            topics,
            self.target,
            self._connection,
            produces,
            self._gate,
            self._pass,
            self.find_versions,
        )

    def start(self, frame: Frame) -> Answer | Awaitable[Answer]:
        """Pass one request on; return its response, or an awaitable.

        Raises:
            ProtocolError: the API is not forwarded, or the request cannot be decoded.
        """
        key, version, correlation_id = peek(frame)
        passage = self.target.passages.find((key, version))
        if passage is None:
            self.state.arrive()
            if key == API_VERSIONS_KEY:
                return refuse_versions(correlation_id)
            self.state.on(LinkEvent.DRAIN)
            raise ProtocolError(f"API {key} in version {version} does not pass through the proxy")
        if self.state.stage is not LinkStage.ROUTING:
            self.state.note_request(key)
            if key == API_VERSIONS_KEY:
                note_software(self._connection.session, frame)
        if passage.is_filtered:
            return self._filters.start(self._forward, self, passage, correlation_id, frame)
        return self._forward(passage, correlation_id, [frame], is_one_way=False)

    def drain(self) -> None:
        """Take no more requests; close all connections when those in flight are answered."""
        self.state.on(LinkEvent.DRAIN)
        self._connection.close()

    def keep_brokers(self, brokers: Collection[int]) -> None:
        """Close the connections to all other brokers; their requests fail and are repeated."""
        self._backends.keep(brokers)

    # Requests of filters' own.

    async def find_versions(self) -> Versions:
        """Return the versions that all brokers of the upstream know.

        Raises:
            Unavailable: none answers.
        """
        offered = await self._versions.find(None)
        ranges = {row.api_key: (row.min_version, row.max_version) for row in offered.api_keys}
        return Versions("of the upstream", ranges, {})

    async def call(self, api: Api[Request, Response], version: int, request: Request) -> Response:
        """Send a request; return its response in the form for the client.

        Raises:
            Unavailable: the upstream does not answer.
            ApiError: the API is not forwarded.
        """
        passage = self.target.passages.find((api.key, version))
        if passage is None:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api.name} in version {version} does not pass through the proxy",
            )
        response: Any = await self._start(NodeCall(passage, None, request))
        return response  # type: ignore[no-any-return] # the API's own response

    # Requests of the client.

    def _forward(
        self, passage: Passage, correlation_id: int, parts: list[Buffer], *, is_one_way: bool
    ) -> Awaitable[Answer]:
        """Send a request, given without its length; return its response as the client gets it."""
        del is_one_way  # it follows from the request
        header, request = read_request(passage.api, join_parts(parts))
        call = NodeCall(passage, header.client_id, request)
        return self._encode(call, correlation_id, self._start(call))

    async def _encode(
        self, call: NodeCall, correlation_id: int, work: Awaitable[Message | None]
    ) -> Answer:
        response = await work
        if response is None:
            return None
        return response_frame(call.api, call.version, correlation_id, response)

    def _start(self, call: NodeCall) -> Awaitable[Message | None]:
        """Send a request, through the virtual partitions if there are any."""
        work = None if self._virtual is None else self._virtual.start(call)
        return self._pass(call) if work is None else work

    def _pass(self, call: NodeCall) -> Awaitable[Message | None]:
        """Send a request now, or after the lookups that it needs."""
        kind = route_of(call.api).kind
        if kind is RouteKind.VERSIONS:
            return self._list_versions()
        if kind is RouteKind.FETCH:
            # It looks up what it needs itself: it may wait without delaying other requests.
            return self._show(call, self._fetches.fetch(call, self.target.request_options))
        missing = find_missing(self._directory, call)
        if missing.is_empty:
            return self._show(call, self._dispatch(call))
        self._gate.begin_lookup()
        return self._look_up(call, missing)

    async def _list_versions(self) -> Message:
        """Return the versions that the client may use.

        A client without acknowledgements learns by the answer that all its writes were read,
        as from a broker.
        """
        passage = self.target.passages.find((API_VERSIONS_KEY, 0))
        assert passage is not None  # noqa: S101 (it always passes)
        call = NodeCall(passage, None, ApiVersionsRequest())
        await self._unconfirmed.confirm(call, self.target.request_options)
        return await self._versions.find(None)

    async def _look_up(self, call: NodeCall, missing: MissingPlaces) -> Message | None:
        try:
            await look_up(self._directory, missing, self._ask_any)
            work = self._dispatch(call)
        finally:
            self._gate.end_lookup()
        return await self._show(call, work)

    def _dispatch(self, call: NodeCall) -> Awaitable[Message | None]:
        target = self.target
        if route_of(call.api).kind is RouteKind.PRODUCE:
            return self._produces.start(call, target.request_options, target.one_way_options)
        options = target.slow_options if call.passage.is_slow else target.request_options
        return self._router.start(call, options)

    async def _show(self, call: NodeCall, work: Awaitable[Message | None]) -> Message | None:
        """Learn from an answer of the upstream, then replace its brokers by the instances."""
        response = await work
        match response:
            case None:
                return None
            case MetadataResponse():
                self._directory.learn_metadata(response)
            case FindCoordinatorResponse():
                self._directory.learn_coordinators(call.request, response)
            case _:
                pass
        return self._view.show(call.request, response)

    async def _ask_any(
        self, api: Api[Request, Response], request: Request, lowest: int
    ) -> Response:
        """Ask any broker for something that a request needs; return its answer as it is.

        Raises:
            Unavailable: no broker answers.
            ApiError: the upstream does not know the API.
        """
        version = (await self.find_versions()).choose(api, lowest=lowest)
        passage = self.target.passages.find((api.key, version))
        assert passage is not None  # noqa: S101 (the common versions are those that pass)
        call = NodeCall(passage, None, request)
        response: Any = await self._router.start(call, self.target.request_options)
        return response  # type: ignore[no-any-return] # the API's own response

    def _lose_client(self) -> None:
        self.state.on(LinkEvent.LOST)
        self._backends.close()
