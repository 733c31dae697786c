"""Requests relayed from socket to socket are not lost, shifted or repeated."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.net.connection import Connection
from rookery.proxy.clientlink import ClientLink
from rookery.proxy.direct.relayrules import relay_rules
from rookery.proxy.filterapi import Filter, FilterContext, Forward, Verdict, on_request
from rookery.proxy.passage import mirror_passages
from rookery.proxy.settings import ProxySettings
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import is_one_way, read_response, request_frame, response_frame
from rookery.wire.message import Api
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from rookery.wire.messages.fetch import NodeEndpoint as FetchEndpoint
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.proxy.scripted import Behaviour, ScriptedBroker, framed, key_of, number_of
from tests.proxy.test_broken_answers import Script, known_versions

TIMEOUT_SECONDS = 60
IS_NATIVE = relay_rules(mirror_passages(), ProxySettings()) is not None
WARM_UP = 3
"""The number of requests after which the next ones are relayed directly."""


class Client:
    """A raw client that has its requests relayed directly."""

    def __init__(self, proxy: ServedProxy, warm_up: int = WARM_UP) -> None:
        self._proxy = proxy
        self.socket = socket.create_connection((HOST, proxy.port), TIMEOUT_SECONDS)
        self.stream = self.socket.makefile("rb")
        for number in range(warm_up):
            self.send(heartbeat(number))
            assert self.receive() == done(number)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Return the next response with its length; nothing at the end of the connection."""
        head = self.stream.read(4)
        return head + self.stream.read(int.from_bytes(head, "big"))

    @property
    def connection(self) -> Connection:
        """The proxy's end of this connection."""
        [connection] = self._proxy.proxy.clusters[0].links
        return connection

    @property
    def relayed(self) -> int:
        """How many requests in flight are relayed directly, or all of them without native code."""
        direct = self.connection.flow.queue.direct
        if not IS_NATIVE:
            return self.connection.in_flight
        return -1 if direct is None else direct.in_flight

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def heartbeat(number: int, padding: int = 0) -> bytes:
    request = HeartbeatRequest(group_id="g" * (1 + padding), generation_id=1, member_id="m")
    return b"".join(request_frame(HEARTBEAT, 4, number, "me", request))


def done(number: int, padding: int = 0) -> bytes:
    return framed(number, b"\0" + bytes(4) + bytes(2) + bytes(padding) + b"\0")


def answer(client: socket.socket, request: bytes) -> None:
    client.sendall(done(number_of(request)))


def heartbeats(behave: Behaviour) -> Behaviour:
    """Behave so to Heartbeat, and end the connection at the proxy's own requests."""

    def answer_request(client: socket.socket, request: bytes) -> None:
        if key_of(request) != HEARTBEAT.key:
            raise ConnectionError("not Heartbeat")
        behave(client, request)

    return answer_request


class Holding:
    """Answers after the requests of the warm-up, when and how a test wants it."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.client: socket.socket | None = None

    def __call__(self, client: socket.socket, request: bytes) -> None:
        self.client = client
        self.requests.append(request)
        if len(self.requests) <= WARM_UP:
            answer(client, request)

    @property
    def numbers(self) -> list[int]:
        """The correlation ids of the requests after the warm-up."""
        return [number_of(request) for request in self.requests[WARM_UP:]]

    def send(self, data: bytes) -> None:
        assert self.client is not None
        self.client.sendall(data)


@contextmanager
def client_of(
    behave: Behaviour, settings: ProxySettings | None = None, *, warm_up: int = WARM_UP
) -> Iterator[tuple[Client, ScriptedBroker]]:
    """Run a broker, a proxy and a client after its first requests."""
    broker = ScriptedBroker(behave)
    try:
        with ServedProxy(broker.bootstrap, settings) as proxy:
            client = Client(proxy, warm_up)
            try:
                yield client, broker
            finally:
                client.close()
    finally:
        broker.close()


def test_requests_in_flight_are_in_no_queue() -> None:
    holding = Holding()
    with client_of(heartbeats(holding)) as (client, _):
        client.send(heartbeat(-5) + heartbeat(2**31 - 1) + heartbeat(-5))
        wait_until(lambda: len(holding.numbers) == 3)
        assert client.relayed == 3
        assert len(client.connection.flow.queue.requests) == (0 if IS_NATIVE else 3)
        assert client.connection.in_flight == 3
        first = holding.numbers[0]
        assert holding.numbers == [first, first + 1, first + 2]

        holding.send(b"".join(map(done, holding.numbers)))

        assert [client.receive() for _ in range(3)] == [done(-5), done(2**31 - 1), done(-5)]
        assert client.connection.in_flight == 0
        assert client.connection.requests == WARM_UP + 3
        assert client.connection.bytes_in == sum(
            map(len, [*map(heartbeat, range(WARM_UP)), *[heartbeat(0)] * 3])
        )
        assert client.connection.sent_bytes == (WARM_UP + 3) * len(done(0))


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_requests_that_arrive_with_the_first_one(cut: int) -> None:
    data = b"".join(map(heartbeat, range(10)))
    with client_of(heartbeats(answer), warm_up=0) as (client, _):
        client.send(data[:-cut])
        assert [client.receive() for _ in range(9)] == list(map(done, range(9)))
        client.send(data[-cut:])
        assert client.receive() == done(9)


def test_no_memory_is_kept_while_a_client_is_idle() -> None:
    with client_of(heartbeats(answer)) as (client, _):
        for number in range(20):
            client.send(heartbeat(number))
            assert client.receive() == done(number)

        flow = client.connection.flow
        assert (flow.splitter.pending, flow.queue.held_bytes, flow.queue.unanswered_bytes) == (
            (0,) * 3
        )


def wrong_number(holding: Holding) -> None:
    holding.send(done(holding.numbers[0] + 1))


def unasked(holding: Holding) -> None:
    holding.send(b"".join(done(number) for number in [*holding.numbers, 7]))


def huge_length(holding: Holding) -> None:
    holding.send(struct.pack(">ii", 2**31 - 1, holding.numbers[0]))


def negative_length(holding: Holding) -> None:
    holding.send(struct.pack(">ii", -1, holding.numbers[0]))


def cut_short(holding: Holding) -> None:
    assert holding.client is not None
    holding.send(done(holding.numbers[0])[:-2])
    holding.client.shutdown(socket.SHUT_RDWR)


def second_first(holding: Holding) -> None:
    holding.send(b"".join(done(number) for number in reversed(holding.numbers)))


@pytest.mark.parametrize(
    "misbehave", [wrong_number, huge_length, negative_length, cut_short, second_first]
)
def test_misbehaving_broker_costs_its_connection(misbehave: Callable[[Holding], None]) -> None:
    holding = Holding()
    with client_of(heartbeats(holding)) as (client, broker):
        client.send(heartbeat(8) + heartbeat(9))
        wait_until(lambda: len(holding.numbers) == 2)
        assert client.relayed == 2

        misbehave(holding)

        assert client.receive() == b""
        wait_until(lambda: broker.is_left)


@pytest.mark.parametrize("misbehave", [wrong_number, unasked, huge_length, cut_short])
def test_responses_before_the_fault_arrive(misbehave: Callable[[Holding], None]) -> None:
    holding = Holding()
    with client_of(heartbeats(holding)) as (client, _):
        client.send(heartbeat(7) + heartbeat(8))
        wait_until(lambda: len(holding.numbers) == 2)
        holding.send(done(holding.numbers[0]))
        assert client.receive() == done(7)
        del holding.requests[WARM_UP]

        misbehave(holding)

        assert client.receive() == (done(8) if misbehave is unasked else b"")
        assert client.receive() == b""


def test_silent_broker_costs_the_connection_after_the_deadline() -> None:
    holding = Holding()
    with client_of(heartbeats(holding), ProxySettings(request_timeout_ms=300)) as (client, broker):
        client.send(heartbeat(7))

        assert client.receive() == b""
        wait_until(lambda: broker.is_left)
        assert holding.numbers


def test_half_closed_client_gets_its_responses() -> None:
    holding = Holding()
    with client_of(heartbeats(holding)) as (client, _):
        client.send(heartbeat(7) + heartbeat(8))
        wait_until(lambda: len(holding.numbers) == 2)
        assert client.relayed == 2
        client.socket.shutdown(socket.SHUT_WR)
        wait_until(lambda: len(client.connection.flow.queue.requests) == 2)

        holding.send(b"".join(map(done, holding.numbers)))

        assert [client.receive() for _ in range(3)] == [done(7), done(8), b""]


def test_client_that_is_gone_closes_the_broker_connection() -> None:
    holding = Holding()
    with client_of(heartbeats(holding)) as (client, broker):
        client.send(heartbeat(7))
        wait_until(lambda: len(holding.numbers) == 1)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

        wait_until(lambda: broker.is_left)


def test_drain_answers_requests_in_flight() -> None:
    holding = Holding()
    with client_of(heartbeats(holding)) as (client, broker):
        client.send(heartbeat(7))
        wait_until(lambda: client.relayed == 1)
        [link] = client._proxy.proxy.clusters[0].links.values()

        async def drain() -> None:
            link.drain()

        client._proxy.do(drain())
        holding.send(done(holding.numbers[0]))

        assert [client.receive(), client.receive()] == [done(7), b""]
        wait_until(lambda: broker.is_left)


def test_incomplete_request_waits_for_its_rest() -> None:
    with client_of(heartbeats(answer)) as (client, _):
        data = heartbeat(7) + heartbeat(8)
        for end in range(1, len(data)):
            client.send(data[end - 1 : end])
        client.send(data[-1:])

        assert [client.receive(), client.receive()] == [done(7), done(8)]
        assert client.relayed == 0


def test_client_that_does_not_read_loses_nothing() -> None:
    count, padding = 1500, 9_000

    def answer_at_length(client: socket.socket, request: bytes) -> None:
        number = number_of(request)
        client.sendall(done(number) if number < WARM_UP else done(number, padding))

    with client_of(heartbeats(answer_at_length)) as (client, _):
        sender = threading.Thread(
            target=client.send, args=(b"".join(heartbeat(n) for n in range(count)),)
        )
        sender.start()
        wait_until(lambda: client.connection.is_stuck)

        assert [client.receive() for _ in range(count)] == [done(n, padding) for n in range(count)]
        sender.join()


def test_broker_that_does_not_read_loses_nothing() -> None:
    count, padding = 1500, 9_000
    gate = threading.Event()
    requests: list[bytes] = []

    def read_late(client: socket.socket, request: bytes) -> None:
        if len(requests) == WARM_UP:
            assert gate.wait(TIMEOUT_SECONDS)
        requests.append(request)
        answer(client, request)

    with client_of(heartbeats(read_late)) as (client, _):
        sender = threading.Thread(
            target=client.send, args=(b"".join(heartbeat(n, padding) for n in range(count)),)
        )
        sender.start()
        wait_until(lambda: client.connection.in_flight == 64)
        gate.set()

        assert [client.receive() for _ in range(count)] == [done(n) for n in range(count)]
        sender.join()
        assert all(request[8:] == heartbeat(0, padding)[12:] for request in requests[WARM_UP:])


# One that a chunk holds, and those for which memory grows with what arrives.
LARGE = [20_000, 100_000, 300_000, 3_000_000]


def has_received(connection: Connection, count: int) -> bool:
    return connection.bytes_in == count


@pytest.mark.parametrize("size", LARGE)
def test_large_request_in_pieces_is_relayed_directly(size: int) -> None:
    holding = Holding()
    with client_of(heartbeats(holding)) as (client, _):
        data = heartbeat(7, size) + heartbeat(8)
        budget = client.connection._budget
        before = client.connection.bytes_in
        for end in (1000, size // 3, size - 1000):
            sent = client.connection.bytes_in - before
            client.send(data[sent:end])
            wait_until(partial(has_received, client.connection, before + end))
            # Nothing is counted that has not arrived.
            assert budget.used == end
        assert client.connection.flow.splitter.pending == (0 if IS_NATIVE else size - 1000)
        client.send(data[size - 1000 :])
        wait_until(lambda: len(holding.numbers) == 2)

        assert client.relayed == 2
        assert len(client.connection.flow.queue.requests) == (0 if IS_NATIVE else 2)
        assert budget.used == (0 if IS_NATIVE else len(data))
        assert holding.requests[-2][8:] == heartbeat(7, size)[12:]
        holding.send(b"".join(map(done, holding.numbers)))
        assert [client.receive() for _ in range(2)] == [done(7), done(8)]
        assert budget.used == 0


@pytest.mark.parametrize("size", LARGE)
def test_large_response_in_pieces_is_relayed_directly(size: int) -> None:
    holding = Holding()
    with client_of(heartbeats(holding)) as (client, _):
        client.send(heartbeat(7) + heartbeat(8))
        wait_until(lambda: len(holding.numbers) == 2)
        data = done(holding.numbers[0], size) + done(holding.numbers[1])
        queue = client.connection.flow.queue
        holding.send(data[: size // 3])
        # It is counted when its length is known.
        wait_until(lambda: queue.held_bytes >= size)
        holding.send(data[size // 3 :])

        assert [client.receive() for _ in range(2)] == [done(7, size), done(8)]
        assert client.relayed == 0
        assert queue.held_bytes == 0


class HoldingAll(Holding):
    """Answers decoded requests, too, until the warm-up is over."""

    def __init__(self) -> None:
        super().__init__()
        self.script = Script()
        self.decoded: list[bytes] = []

    def __call__(self, client: socket.socket, request: bytes) -> None:
        if key_of(request) == HEARTBEAT.key:
            super().__call__(client, request)
        elif self.numbers:
            self.decoded.append(request)
        else:
            self.script(client, request)


def test_request_that_is_decoded_follows_an_incomplete_response() -> None:
    holding, size = HoldingAll(), 200_000
    with client_of(holding, warm_up=0) as (client, broker):
        holding.script.port = broker.port
        for number in range(WARM_UP):
            client.send(heartbeat(number))
            assert client.receive() == done(number)
        client.send(heartbeat(7))
        wait_until(lambda: len(holding.numbers) == 1)
        response = done(holding.numbers[0], size)
        holding.send(response[: size // 2])
        wait_until(lambda: client.connection.held_bytes >= size)
        client.send(b"".join(request_frame(METADATA, 12, 9, "me", MetadataRequest(topics=[]))))
        wait_until(lambda: holding.decoded)
        assert client.relayed == (0 if IS_NATIVE else 2)
        assert len(client.connection.flow.queue.requests) == 2
        holding.send(response[size // 2 :])

        assert client.receive() == done(7, size)
        assert holding.client is not None
        holding.script(holding.client, holding.decoded[0])
        assert client.receive()[4:8] == struct.pack(">i", 9)


@pytest.mark.parametrize("limit", ["request_bytes", "answer_bytes"])
def test_large_frames_pass_while_there_is_little_memory(limit: str) -> None:
    size, count = 3_000_000, 3
    answer_size = size if limit == "answer_bytes" else 0

    def answer_at_length(client: socket.socket, request: bytes) -> None:
        number = number_of(request)
        client.sendall(done(number, answer_size if number >= WARM_UP else 0))

    limits: dict[str, Any] = {limit: 1_048_576}
    with client_of(heartbeats(answer_at_length), ProxySettings(**limits)) as (client, _):
        asked = [heartbeat(n, 0 if answer_size else size) for n in range(count)]
        sender = threading.Thread(target=client.send, args=(b"".join(asked),))
        sender.start()

        assert [client.receive() for _ in asked] == [done(n, answer_size) for n in range(count)]
        sender.join()
        assert client.connection._budget.used == 0


SIZES = [3_000, 30_000, 150_000, 700_000]


def answer_of(number: int) -> bytes:
    random = Random(number)
    return framed(number, random.randbytes(random.choice(SIZES)))


def asked_of(number: int) -> bytes:
    random = Random(number)
    # A tagged field of the header holds any bytes.
    field = random.randbytes(random.choice(SIZES))
    head = struct.pack(">hhih", HEARTBEAT.key, 4, number, -1)
    data = head + b"\1\x0b" + uvarint(len(field)) + field
    return struct.pack(">i", len(data)) + data


def uvarint(number: int) -> bytes:
    return bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])


def test_client_that_reads_slowly_gets_what_the_broker_has_sent() -> None:
    count = 60

    def answer_at_length(client: socket.socket, request: bytes) -> None:
        number = number_of(request)
        client.sendall(done(number) if number < WARM_UP else answer_of(number))

    with client_of(heartbeats(answer_at_length)) as (client, _):
        numbers = range(WARM_UP, WARM_UP + count)
        client.send(b"".join(map(heartbeat, numbers)))
        wait_until(lambda: client.connection.flow.queue.held_bytes > 0)
        for number in numbers:
            assert client.receive() == answer_of(number)


def test_broker_that_reads_slowly_gets_what_the_client_has_sent() -> None:
    count, gate = 60, threading.Event()
    requests: list[bytes] = []

    def read_late(client: socket.socket, request: bytes) -> None:
        if len(requests) == WARM_UP:
            assert gate.wait(TIMEOUT_SECONDS)
        requests.append(request)
        answer(client, request)

    with client_of(heartbeats(read_late)) as (client, _):
        asked = [asked_of(number) for number in range(count)]
        sender = threading.Thread(target=client.send, args=(b"".join(asked),))
        sender.start()
        [link] = client._proxy.proxy.clusters[0].links.values()
        assert isinstance(link, ClientLink)
        upstream = link._upstream
        assert upstream is not None
        wait_until(lambda: upstream.transport and upstream.transport.get_write_buffer_size() > 0)
        gate.set()
        assert [client.receive() for _ in asked] == [done(n) for n in range(count)]
        sender.join()
        assert [data[8:] for data in requests[WARM_UP:]] == [data[12:] for data in asked]


class Watching(Filter):
    @on_request(HEARTBEAT)
    def watch(self, context: FilterContext, request: HeartbeatRequest) -> Verdict:
        return Forward()


def test_filters_see_every_request() -> None:
    broker = ScriptedBroker(heartbeats(answer))
    with ServedProxy(broker.bootstrap, filters=[Watching()]) as proxy:
        client = Client(proxy)
        assert client.connection.flow.queue.direct is None
        client.close()
    broker.close()


def test_broker_nodes_relay_nothing_directly() -> None:
    with ServedProxy(f"{HOST}:{free_port()}", ProxySettings(nodes="proxy")) as proxy:
        assert proxy.proxy.clusters[0].listeners.first.relay_rules is None


# A mix of all ways in which a request can pass.

Kind = tuple[Api[Any, Any], int, Callable[[], Any]]


def produce(size: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=Random(size).randbytes(size))
    topic = TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])


KINDS: list[Kind] = [
    (HEARTBEAT, 4, lambda: HeartbeatRequest(group_id="g", generation_id=1, member_id="m")),
    (HEARTBEAT, 2, lambda: HeartbeatRequest(group_id="g", generation_id=1, member_id="m")),
    (PRODUCE, 12, lambda: ProduceRequest(acks=1, timeout_ms=1, topic_data=[])),
    (PRODUCE, 12, lambda: produce(20_000)),
    (PRODUCE, 12, lambda: produce(400_000)),
    (PRODUCE, 9, lambda: ProduceRequest(acks=-1, timeout_ms=1, topic_data=[])),
    (PRODUCE, 12, lambda: ProduceRequest(acks=0, timeout_ms=1, topic_data=[])),
    (PRODUCE, 7, lambda: ProduceRequest(acks=0, timeout_ms=1, topic_data=[])),
    (FETCH, 17, lambda: FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])),
    (METADATA, 12, lambda: MetadataRequest(topics=[])),
    (API_VERSIONS, 3, ApiVersionsRequest),
]


class MixedBroker(Script):
    """Answers with the number that the client id is, in pieces of any size."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = Random(seed)
        self._waiting = b""
        self.asked: dict[int, bytes] = {}
        self.unchanged: dict[int, bytes] = {}

    def __call__(self, client: socket.socket, request: bytes) -> None:
        key = key_of(request)
        version = int.from_bytes(request[2:4], "big")
        size = int.from_bytes(request[8:10], "big", signed=True)
        name = request[10 : 10 + max(size, 0)]
        if not name.isdigit():
            super().__call__(client, request)
            return
        self.asked[int(name)] = request[8:]
        api = next(api for api, _, _ in KINDS if api.key == key)
        if not is_one_way(api, request):
            response = self._response(api, version, request, int(name))
            parts = response_frame(api, version, number_of(request), response)
            whole = b"".join(parts)
            has_addresses = getattr(response, "node_endpoints", None)
            if api not in (METADATA, API_VERSIONS) and not has_addresses:
                self.unchanged[int(name)] = whole[8:]
            self._waiting += whole
        self._flush(client, is_last=int(name) >= COUNT - 1)

    def _response(self, api: Api[Any, Any], version: int, request: bytes, number: int) -> Any:
        if api is HEARTBEAT:
            return HeartbeatResponse(throttle_time_ms=number, error_code=ErrorCode.NONE)
        if api is PRODUCE:
            return ProduceResponse(responses=[], throttle_time_ms=number)
        if api is FETCH:
            fetched = FetchResponse(throttle_time_ms=number, responses=[])
            if self._random.random() < 0.2:
                # Not relayed directly.
                fetched.node_endpoints = [FetchEndpoint(node_id=9, host=HOST, port=1)]
            if self._random.random() < 0.2:
                fetched.unknown_tags = {9: bytes(3000)}
            if self._random.random() < 0.3:
                size = self._random.choice([3_000, 30_000, 100_000, 700_000])
                records = self._random.randbytes(size)
                data = PartitionData(
                    partition_index=0,
                    error_code=ErrorCode.NONE,
                    high_watermark=1,
                    records=records,
                )
                fetched.responses = [FetchableTopicResponse(partitions=[data])]
            return fetched
        if api is METADATA:
            metadata = self._metadata()
            metadata.throttle_time_ms = number
            return metadata
        versions = known_versions()
        versions.throttle_time_ms = number
        return versions

    def _flush(self, client: socket.socket, *, is_last: bool) -> None:
        if is_last or self._random.random() < 0.3:
            while self._waiting:
                size = self._random.choice([1, 3, 7, 50, 1000, 100_000])
                client.sendall(self._waiting[:size])
                self._waiting = self._waiting[size:]


COUNT = 400


def pieces_of(data: bytes, random: Random) -> Iterator[bytes]:
    while data:
        size = random.choice([1, 5, 30, 200, 2000, 70_000])
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("seed", range(4))
def test_mixed_requests_in_any_pieces_get_their_own_responses(seed: int) -> None:
    random = Random(seed)
    asked = [KINDS[0], *(random.choice(KINDS) for _ in range(COUNT - 2)), KINDS[0]]
    frames = [
        b"".join(request_frame(api, version, random.randrange(-(2**31), 2**31), str(n), make()))
        for n, (api, version, make) in enumerate(asked)
    ]
    broker = MixedBroker(seed)
    with client_of(broker, warm_up=0) as (client, scripted):
        broker.port = scripted.port

        def send() -> None:
            for piece in pieces_of(b"".join(frames), random):
                client.send(piece)

        sender = threading.Thread(target=send)
        sender.start()
        for n, (api, version, _) in enumerate(asked):
            if is_one_way(api, frames[n][4:]):
                continue
            data = client.receive()
            assert data[4:8] == frames[n][8:12]
            assert read_response(api, version, data[4:]).throttle_time_ms == n
            assert data[8:] == broker.unchanged.get(n, data[8:])
        sender.join()
        assert client.relayed == 0
        assert broker.asked == {n: data[12:] for n, data in enumerate(frames)}
