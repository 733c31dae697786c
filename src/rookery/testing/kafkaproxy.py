"""A proxy in front of every broker of a Kafka, which delays, changes or cuts connections.

    with KafkaProxy(kafka.bootstrap) as proxy:
        proxy.rtt_ms[1] = 300
        proxy.add(KafkaFault(flip, "birds", partition=0))
        Client(proxy.bootstrap)

Clients stay with it: the addresses in every answer are those of the proxy. It runs in a thread of
its own, so that blocking clients can be tried. Brokers that join later are reached past it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Coroutine
from random import Random
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar, cast

from rookery.model.address import Address, parse_addresses
from rookery.net.loop import loop_factory
from rookery.testing.kafkafaults import KafkaFault, Names
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ask
from rookery.wire.buffer import Buffer
from rookery.wire.catalog import apis
from rookery.wire.codec import is_one_way, peek, read_response, response_frame
from rookery.wire.endpoints import has_endpoints, rewrite_endpoints
from rookery.wire.frame import RESPONSE_MINIMUM, Frame, FrameSplitter
from rookery.wire.message import Api, Message
from rookery.wire.messages.list_offsets import LIST_OFFSETS
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataResponse

_TIMEOUT: Final = 60.0
_LARGEST: Final = 2**31 - 1
Span: TypeAlias = float | tuple[float, float]
"""Milliseconds, or from how many to how many, each answer's own by chance."""
T = TypeVar("T")


class KafkaProxy:
    """Listeners before all brokers, one for each."""

    def __init__(self, bootstrap: str, *, seed: int = 0) -> None:
        """Choose nothing yet; the seed makes spans of time repeatable."""
        self.rtt_ms: dict[int, Span] = {}
        """The delay of a broker's answers, by its id; connecting takes as long."""
        self.requests: Counter[str] = Counter()
        """The number of requests by API."""
        self.connections = 0
        self.random = Random(seed)
        self.faults: list[KafkaFault] = []
        self.names: Names = {}
        self._upstream = parse_addresses(bootstrap)
        self._ways: dict[int, _Way] = {}
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def bootstrap(self) -> str:
        """Where clients begin: all brokers, with commas between."""
        return ",".join(way.address.text for way in self._ways.values())

    @property
    def nodes(self) -> list[int]:
        """The brokers' ids."""
        return list(self._ways)

    def add(self, fault: KafkaFault) -> KafkaFault:
        """Add a fault."""
        self.faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults and delays."""
        self.faults.clear()
        self.rtt_ms.clear()

    def cut(self, *nodes: int) -> None:
        """End connections to these brokers, by default to all, and refuse new ones."""
        for node in nodes or self._ways:
            self._do(self._ways[node].close())

    def mend(self, *nodes: int) -> None:
        """Accept connections again, at the same addresses."""
        for node in nodes or self._ways:
            self._do(self._ways[node].open())

    def delay(self, node: int) -> float:
        """Return the delay of an answer of a broker, in seconds."""
        span = self.rtt_ms.get(node, 0.0)
        return (self.random.uniform(*span) if isinstance(span, tuple) else span) / 1000

    def translate(self, node: int, address: Address) -> Address:
        """Return where clients find a broker."""
        way = self._ways.get(node)
        return way.address if way else address

    def start(self) -> None:
        """Learn the brokers and listen for each."""
        request = MetadataRequest(topics=[])
        metadata = ask(self._upstream[0].text, METADATA, 12, request)
        self._thread.start()
        for row in metadata.brokers:
            self._ways[row.node_id] = _Way(self, row.node_id, Address(row.host, row.port))
        self.mend()

    def close(self) -> None:
        """End everything."""
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT)
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT)


class _Way:
    """The listener before one broker."""

    def __init__(self, proxy: KafkaProxy, node: int, upstream: Address) -> None:
        self.proxy = proxy
        self.node = node
        self.upstream = upstream
        self.address = Address(HOST, free_port())
        self.clients: set[_Client] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Take connections."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _Client(self), *self.address)

    async def close(self) -> None:
        """Accept none, and end the existing ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for client in list(self.clients):
                client.end()
            await server.wait_closed()


class _PendingRequest(NamedTuple):
    """A request whose answer has not come yet."""

    api: Api[Message, Message]
    version: int


class _Client(asyncio.Protocol):
    """A client's connection, with one of its own to the broker."""

    def __init__(self, way: _Way) -> None:
        self._way = way
        self._loop = asyncio.get_running_loop()
        self._requests = FrameSplitter(_LARGEST)
        self._asked: deque[_PendingRequest] = deque()
        self._waiting: list[Buffer] = []
        self._upstream: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._open_at = 0.0
        # Answers stay in order, however late each is.
        self._last = 0.0
        self._late: deque[tuple[float, list[Buffer]]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._way.clients.add(self)
        self._way.proxy.connections += 1
        # The system has taken the connection at once; on a long way that takes a round trip.
        self._open_at = monotonic() + self._way.proxy.delay(self._way.node)
        self._connecting = self._loop.create_task(self._connect())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.end()

    def data_received(self, data: bytes) -> None:
        for frame in self._requests.feed(data):
            self._note(frame)
            self._send([len(frame).to_bytes(4, "big"), frame])

    def answer(self, frame: Frame) -> None:
        """Pass an answer on, changed and delayed as configured."""
        asked, proxy = self._asked.popleft(), self._way.proxy
        parts: list[Buffer] = [len(frame).to_bytes(4, "big"), frame]
        # Faults change answers about offsets, and some of those with addresses.
        if asked.api is LIST_OFFSETS or has_endpoints(asked.api.response):
            response = read_response(asked.api, asked.version, frame)
            self._change(response)
            number = int.from_bytes(frame[:RESPONSE_MINIMUM], "big", signed=True)
            parts = response_frame(asked.api, asked.version, number, response)
        now = monotonic()
        self._last = max(self._last, max(now, self._open_at) + proxy.delay(self._way.node))
        self._late.append((self._last, parts))
        if len(self._late) == 1:
            self._write_due()

    def end(self) -> None:
        """End both connections at once."""
        self._way.clients.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for transport in (self._transport, self._upstream):
            if transport is not None:
                transport.abort()

    async def _connect(self) -> None:
        try:
            transport, _ = await self._loop.create_connection(
                lambda: _Upstream(self), *self._way.upstream
            )
        except OSError:
            self.end()
            return
        self._upstream = transport
        self._upstream.writelines(self._waiting)
        self._waiting.clear()

    def _note(self, frame: Frame) -> None:
        key, version, _ = peek(frame)
        api = apis()[key]
        self._way.proxy.requests[api.name] += 1
        if not is_one_way(api, frame):
            self._asked.append(_PendingRequest(api, version))

    def _send(self, parts: list[Buffer]) -> None:
        if self._upstream is None:
            self._waiting += parts
        else:
            self._upstream.writelines(parts)

    def _change(self, response: Message) -> None:
        proxy = self._way.proxy
        if isinstance(response, MetadataResponse):
            proxy.names.update(
                (topic.topic_id, topic.name) for topic in response.topics if topic.name
            )
        rewrite_endpoints(response, proxy.translate)
        for fault in list(proxy.faults):
            fault.strike(response, proxy.names)

    def _write_due(self) -> None:
        """Pass on all answers whose time has come; one timer, as two could change places."""
        while self._late:
            left = self._late[0][0] - monotonic()
            if left > 0:
                self._loop.call_later(left, self._write_due)
                return
            _, parts = self._late.popleft()
            if not self._transport.is_closing():
                self._transport.writelines(parts)


class _Upstream(asyncio.Protocol):
    """The connection to the broker."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._answers = FrameSplitter(_LARGEST, minimum=RESPONSE_MINIMUM)

    def data_received(self, data: bytes) -> None:
        for frame in self._answers.feed(data):
            self._client.answer(frame)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._client.end()
