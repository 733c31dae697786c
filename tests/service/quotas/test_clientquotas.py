"""Client quotas with a clock that tests move: which limits apply, and how long clients pause."""

from __future__ import annotations

import asyncio

import pytest

from rookery.cluster.state.security import Security
from rookery.errors import ApiError, ErrorCode
from rookery.net.outbox import Answer
from rookery.net.session import ClientSession
from rookery.security.quota import QuotaKey
from rookery.service.quotas.clientquotas import ClientQuotas
from rookery.service.quotas.quotameters import QuotaMeters
from rookery.service.quotas.requestthrottle import RequestThrottle
from rookery.testing.clock import ManualClock
from rookery.wire.message import Message
from rookery.wire.messages.fetch import FetchRequest, FetchResponse
from rookery.wire.messages.metadata import MetadataRequest, MetadataResponse
from rookery.wire.messages.produce import ProduceRequest, ProduceResponse

RATE = QuotaKey.PRODUCER_BYTE_RATE
ALICE = (("user", "alice"),)
BURST_SECONDS = 10
"""A client that was idle can use the limit of this many seconds at once."""


class Client:
    """A client that remembers its pauses."""

    def __init__(self, principal: str = "User:alice") -> None:
        self.session = ClientSession(principal=principal)
        self.pauses: list[int] = []

    def mute(self, duration_ms: int) -> None:
        self.pauses.append(duration_ms)


class World:
    """Quotas of a state, and a clock."""

    def __init__(self, quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]]) -> None:
        self.clock = ManualClock()
        self.security = Security()
        self.quotas = ClientQuotas(self.clock)
        self.change(quotas)

    def change(self, quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]]) -> None:
        self.security.quotas = quotas
        self.security.quotas_version += 1
        self.quotas.refresh(self.security)

    def throttle(self, client: Client, request: Message, size: int = 0) -> RequestThrottle:
        return RequestThrottle(self.quotas, client, "app", request, size)

    def produce(self, client: Client, size: int) -> ProduceResponse:
        request = ProduceRequest(acks=1, timeout_ms=0, topic_data=[])
        response = ProduceResponse(responses=[])
        self.throttle(client, request, size).finish(response, encoded)
        return response


def encoded(_answer: Message) -> Answer:
    return [bytes(100)]


def test_cluster_without_quotas_is_not_active() -> None:
    world = World({})
    before = world.quotas.is_active
    world.change({ALICE: {RATE: 1.0}})
    during = world.quotas.is_active
    world.change({})

    assert (before, during, world.quotas.is_active) == (False, True, False)


def test_state_of_a_snapshot_is_used_although_its_version_is_the_same() -> None:
    world = World({})
    other = Security()
    other.quotas[ALICE] = {RATE: 1.0}
    other.quotas_version = world.security.quotas_version
    world.quotas.refresh(other)

    assert world.quotas.is_active


def test_client_pauses_until_its_rate_is_the_limit() -> None:
    world, client = World({ALICE: {RATE: 1000.0}}), Client()

    assert world.produce(client, 1000 * BURST_SECONDS).throttle_time_ms == 0
    assert client.pauses == []
    response = world.produce(client, 500)

    assert response.throttle_time_ms == 500
    assert client.pauses == [500]
    world.clock.advance(11_500)
    assert world.produce(client, 1000).throttle_time_ms == 0


def test_limit_of_a_user_is_shared_by_its_clients() -> None:
    world = World({ALICE: {RATE: 1000.0}})
    first, second, bob = Client(), Client(), Client("User:bob")

    world.produce(first, 1000 * BURST_SECONDS)

    assert world.produce(second, 1000).throttle_time_ms == 1000
    assert world.produce(bob, 1_000_000).throttle_time_ms == 0


def test_changed_quota_applies_to_earlier_use() -> None:
    world, client = World({ALICE: {RATE: 1000.0}}), Client()
    world.produce(client, 1000 * BURST_SECONDS)

    world.change({ALICE: {RATE: 500.0}})

    assert world.produce(client, 0).throttle_time_ms == 10_000


def test_fetched_bytes_are_those_of_the_response() -> None:
    world, client = World({ALICE: {QuotaKey.CONSUMER_BYTE_RATE: 10.0}}), Client()
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=[])
    first, second = FetchResponse(responses=[]), FetchResponse(responses=[])

    world.throttle(client, request).finish(first, encoded)
    world.throttle(client, request).finish(second, encoded)

    assert request.max_bytes == 10 * BURST_SECONDS
    assert (first.throttle_time_ms, second.throttle_time_ms) == (0, 10_000)
    assert client.pauses == [10_000]


def test_processing_time_is_limited_and_pauses_are_short() -> None:
    world, client = World({ALICE: {QuotaKey.REQUEST_PERCENTAGE: 10.0}}), Client()
    request, response = MetadataRequest(topics=None), MetadataResponse(brokers=[], topics=[])
    throttle = world.throttle(client, request)
    throttle.spend(60.0)

    throttle.finish(response, encoded)

    assert response.throttle_time_ms == 1_000
    assert client.pauses == [1_000]


async def test_steps_of_a_coroutine_are_measured_without_its_waits() -> None:
    world, client = World({ALICE: {QuotaKey.REQUEST_PERCENTAGE: 1e-9}}), Client()
    throttle = world.throttle(client, MetadataRequest(topics=None))

    async def answer() -> str:
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="reason"):
            await asyncio.wait_for(fail(), 5)
        return "done"

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("reason")

    assert await throttle.measure(answer()) == "done"
    throttle.finish(None, encoded)
    assert client.pauses == [1_000]


async def test_measured_coroutine_can_be_cancelled() -> None:
    throttle = World({ALICE: {RATE: 1.0}}).throttle(Client(), MetadataRequest(topics=None))
    ended: list[str] = []

    async def answer() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cleaned up")

    task = asyncio.ensure_future(throttle.measure(answer()))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cleaned up"]


def test_overdrawn_mutations_are_refused_only_if_the_client_knows_the_error() -> None:
    world, client = World({ALICE: {QuotaKey.CONTROLLER_MUTATION_RATE: 1.0}}), Client()
    throttle = world.throttle(client, MetadataRequest(topics=None))

    throttle.take_mutations(21, is_strict=True)
    with pytest.raises(ApiError) as refused:
        throttle.take_mutations(1, is_strict=True)
    throttle.finish(None, encoded)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert client.pauses == [10_000]

    lenient = world.throttle(client, MetadataRequest(topics=None))
    lenient.take_mutations(1, is_strict=False)
    lenient.finish(None, encoded)
    assert client.pauses == [10_000, 11_000]


def test_refused_connections_of_an_address_do_not_count() -> None:
    world = World({(("ip", "10.0.0.1"),): {QuotaKey.CONNECTION_CREATION_RATE: 1.0}})
    record = world.quotas.record_connection

    assert [record("10.0.0.1") for _ in range(BURST_SECONDS)] == [0] * BURST_SECONDS
    assert [record("10.0.0.1") for _ in range(3)] == [1_000] * 3
    assert record("::ffff:10.0.0.1") == 1_000
    assert record("10.0.0.2") == 0
    assert record("") == 0
    world.clock.advance(11_000)
    assert record("10.0.0.1") == 0


def test_idle_meters_are_removed() -> None:
    world = World({(("client-id", None),): {RATE: 1000.0}})
    for number in range(5_000):
        world.clock.advance(100)
        world.quotas.record(RATE, "alice", f"client {number}", 1)

    meters: QuotaMeters = world.quotas._meters
    assert len(meters) <= 1_000
