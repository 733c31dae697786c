"""Logins with SASL: clients of all kinds, refusals, and the limits before a login."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.net.upstream import Upstream, connect
from rookery.security.sasl import Login, open_client
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response, request_frame
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from tests.broker.secured import (
    PASSWORD,
    SASL_MECHANISMS,
    USER,
    RawStream,
    SecuredBroker,
    serve_secured,
)
from tests.kafkapython import KafkaConsumer, KafkaProducer

TIMEOUT_MS = 20_000
SECURED = ("sasl_plaintext", "sasl_ssl")
_topics = count(1)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """One broker with all listeners for the tests of this file."""
    with serve_secured(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"logins-{next(_topics)}"


@asynccontextmanager
async def upstream(broker: SecuredBroker, listener: str) -> AsyncIterator[Upstream]:
    host, _, port = broker.address(listener).rpartition(":")
    tls = broker.trust() if listener.endswith("ssl") else None
    connection = await connect(host, int(port), tls=tls)
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


async def authenticate(connection: Upstream, mechanism: str, message: bytes) -> Any:
    request = SaslHandshakeRequest(mechanism=mechanism)
    answer = await connection.call(SASL_HANDSHAKE, 1, request, TIMEOUT_MS)
    assert answer.error_code is ErrorCode.NONE
    token = SaslAuthenticateRequest(auth_bytes=message)
    return await connection.call(SASL_AUTHENTICATE, 2, token, TIMEOUT_MS)


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
@pytest.mark.parametrize("listener", SECURED)
async def test_own_client_logs_in(
    secured: SecuredBroker, topic: str, listener: str, mechanism: str
) -> None:
    settings = secured.client(listener, Sasl(mechanism, USER, PASSWORD))
    async with Client(settings) as client:
        await client.create_topic(topic, 1, 1)
        await client.produce(topic, b"hello")
        assert [record.value async for record in client.read(topic, 0)] == [b"hello"]


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
@pytest.mark.parametrize("listener", SECURED)
def test_librdkafka_logs_in(
    secured: SecuredBroker, topic: str, listener: str, mechanism: str
) -> None:
    errors: list[object] = []
    producer = Producer(secured.librdkafka(listener, mechanism))
    producer.produce(topic, b"hello", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(secured.librdkafka(listener, mechanism, **group))
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.value() == b"hello"


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
@pytest.mark.parametrize("listener", SECURED)
def test_kafka_python_logs_in(
    secured: SecuredBroker, topic: str, listener: str, mechanism: str
) -> None:
    settings = {
        "bootstrap_servers": secured.address(listener),
        "security_protocol": listener.upper(),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": str(secured.files.ca),
    }
    producer = KafkaProducer(**settings)
    assert producer.send(topic, b"hello").get(20).offset == 0
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **settings)
    assert next(consumer).value == b"hello"
    consumer.close()


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
@pytest.mark.parametrize("listener", SECURED)
async def test_aiokafka_logs_in(
    secured: SecuredBroker, topic: str, listener: str, mechanism: str
) -> None:
    settings = {
        "bootstrap_servers": secured.address(listener),
        "security_protocol": listener.upper(),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_context": secured.trust() if listener == "sasl_ssl" else None,
    }
    async with AIOKafkaProducer(**settings) as producer:
        assert (await producer.send_and_wait(topic, b"hello")).offset == 0
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **settings)
    async with consumer:
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"hello"


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
async def test_unknown_user_and_wrong_password_give_the_same_answer(
    secured: SecuredBroker, mechanism: str
) -> None:
    texts = set()
    for user, password in ((USER, "wrong"), ("stranger", PASSWORD)):
        async with Client(secured.client("sasl_ssl", Sasl(mechanism, user, password))) as client:
            with pytest.raises(ApiError) as caught:
                await client.admin.describe_cluster()
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        texts.add(str(caught.value).replace(user, "USER"))
    assert len(texts) == 1
    assert "invalid credentials" in texts.pop()


async def test_failed_login_closes_the_connection(secured: SecuredBroker) -> None:
    async with upstream(secured, "sasl_plaintext") as connection:
        answer = await authenticate(connection, "PLAIN", b"\0alice\0wrong")
        assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "invalid credentials"
        with pytest.raises(Unavailable):
            await connection.call(API_VERSIONS, 3, ApiVersionsRequest(), TIMEOUT_MS)


def test_librdkafka_reports_a_failed_login(secured: SecuredBroker) -> None:
    errors: list[str] = []
    config = secured.librdkafka("sasl_ssl", "SCRAM-SHA-512")
    config |= {"sasl.password": "wrong", "error_cb": lambda error: errors.append(error.str())}
    producer = Producer(config)
    wait_until(lambda: producer.poll(0.1) >= 0 and bool(errors), "librdkafka reports an error")
    assert "SASL authentication error: invalid credentials" in errors[0]


async def test_decoy_salt_of_an_unknown_user_is_stable(secured: SecuredBroker) -> None:
    salts = set()
    for _ in range(2):
        async with upstream(secured, "sasl_plaintext") as connection:
            message = b"n,,n=stranger,r=0123456789"
            answer = await authenticate(connection, "SCRAM-SHA-256", message)
            assert answer.error_code is ErrorCode.NONE
            salts.add(bytes(answer.auth_bytes).split(b",")[1])
    assert len(salts) == 1
    assert len(secured.broker.replica.state.security.secret) == 32


async def test_unsupported_mechanism_lists_the_offered_ones(secured: SecuredBroker) -> None:
    async with upstream(secured, "sasl_plaintext") as connection:
        request = SaslHandshakeRequest(mechanism="GSSAPI")
        answer = await connection.call(SASL_HANDSHAKE, 1, request, TIMEOUT_MS)
        assert answer.error_code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == list(SASL_MECHANISMS)
        with pytest.raises(Unavailable):
            await connection.call(API_VERSIONS, 3, ApiVersionsRequest(), TIMEOUT_MS)


@pytest.mark.parametrize("listener", SECURED)
async def test_another_api_before_the_login_closes_the_connection(
    secured: SecuredBroker, listener: str
) -> None:
    async with upstream(secured, listener) as connection:
        await connection.call(API_VERSIONS, 3, ApiVersionsRequest(), TIMEOUT_MS)
        with pytest.raises(Unavailable):
            await connection.call(METADATA, 12, MetadataRequest(topics=None), TIMEOUT_MS)


async def test_another_api_within_a_login_closes_the_connection(secured: SecuredBroker) -> None:
    async with upstream(secured, "sasl_plaintext") as connection:
        request = SaslHandshakeRequest(mechanism="PLAIN")
        await connection.call(SASL_HANDSHAKE, 1, request, TIMEOUT_MS)
        with pytest.raises(Unavailable):
            await connection.call(METADATA, 12, MetadataRequest(topics=None), TIMEOUT_MS)


async def test_message_without_a_handshake_is_refused(secured: SecuredBroker) -> None:
    async with upstream(secured, "sasl_plaintext") as connection:
        token = SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        answer = await connection.call(SASL_AUTHENTICATE, 2, token, TIMEOUT_MS)
        assert answer.error_code is ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("listener", ["plaintext", "ssl"])
async def test_listener_without_sasl_refuses_logins(secured: SecuredBroker, listener: str) -> None:
    async with upstream(secured, listener) as connection:
        request = SaslHandshakeRequest(mechanism="PLAIN")
        answer = await connection.call(SASL_HANDSHAKE, 1, request, TIMEOUT_MS)
        assert answer.error_code is ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("size", [524_289, 100_000_000])
async def test_large_frame_before_the_login_closes_the_connection(
    secured: SecuredBroker, size: int
) -> None:
    stream = await RawStream.connect(secured.address("sasl_plaintext"))
    await stream.send_bytes(size.to_bytes(4, "big") + bytes(64))
    assert await stream.wait_closed() == b""
    await stream.close()


async def test_large_frame_after_the_login_is_accepted(secured: SecuredBroker, topic: str) -> None:
    settings = secured.client("sasl_plaintext", Sasl("SCRAM-SHA-256", USER, PASSWORD))
    async with Client(settings) as client:
        await client.create_topic(topic, 1, 1)
        await client.produce(topic, bytes(600_000))
        assert [len(record.value or b"") async for record in client.read(topic, 0)] == [600_000]


@pytest.mark.parametrize("listener", ["plaintext", "ssl", *SECURED])
async def test_listener_advertises_its_own_address(secured: SecuredBroker, listener: str) -> None:
    async with upstream(secured, listener) as connection:
        if listener in SECURED:
            await authenticate(connection, "PLAIN", f"\0{USER}\0{PASSWORD}".encode())
        metadata = await connection.call(METADATA, 12, MetadataRequest(topics=None), TIMEOUT_MS)
        cluster = await connection.call(
            DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=1), TIMEOUT_MS
        )
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
        coordinator = await connection.call(FIND_COORDINATOR, 4, find, TIMEOUT_MS)
    rows: list[Any] = [*metadata.brokers, *cluster.brokers, *coordinator.coordinators]
    addresses = [f"{row.host}:{row.port}" for row in rows]
    assert addresses == [secured.address(listener)] * 3


async def test_plaintext_to_a_tls_listener_closes_the_connection(secured: SecuredBroker) -> None:
    stream = await RawStream.connect(secured.address("sasl_ssl"))
    frame = b"".join(request_frame(API_VERSIONS, 3, 1, "test", ApiVersionsRequest()))
    await stream.send_bytes(frame)
    # OpenSSL may send an alert first.
    assert len(await stream.wait_closed()) < 16
    await stream.close()


def handshake(version: int, mechanism: str) -> bytes:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return b"".join(request_frame(SASL_HANDSHAKE, version, 1, "test", request))


def metadata_request() -> bytes:
    request = MetadataRequest(topics=None)
    return b"".join(request_frame(METADATA, 12, 2, "test", request))


async def bare(broker: SecuredBroker, mechanism: str) -> RawStream:
    """Connect and choose a mechanism whose messages follow as bare frames."""
    stream = await RawStream.connect(broker.address("sasl_plaintext"))
    await stream.send_bytes(handshake(0, mechanism))
    answer = read_response(SASL_HANDSHAKE, 0, memoryview(await stream.receive()))
    assert answer.error_code is ErrorCode.NONE
    return stream


async def test_bare_scram_messages_log_in(secured: SecuredBroker) -> None:
    exchange = open_client("SCRAM-SHA-256", Login(USER, PASSWORD, "0123456789abcdef"))
    stream = await bare(secured, "SCRAM-SHA-256")
    token = exchange.first()
    while not exchange.is_done:
        await stream.send(token)
        token = exchange.respond(await stream.receive())
    await stream.send_bytes(metadata_request())
    answer = read_response(METADATA, 12, memoryview(await stream.receive()))
    assert len(answer.brokers) == 1
    await stream.close()


async def test_bare_plain_message_logs_in(secured: SecuredBroker) -> None:
    stream = await bare(secured, "PLAIN")
    await stream.send(f"\0{USER}\0{PASSWORD}".encode())
    assert await stream.receive() == b""
    await stream.send_bytes(metadata_request())
    assert len(read_response(METADATA, 12, memoryview(await stream.receive())).brokers) == 1
    # The messages of a second login look like requests.
    await stream.send_bytes(handshake(0, "PLAIN"))
    answer = read_response(SASL_HANDSHAKE, 0, memoryview(await stream.receive()))
    assert answer.error_code is ErrorCode.ILLEGAL_SASL_STATE
    await stream.close()


@pytest.mark.parametrize("message", [b"", b"\0a\0", b"\0alice\0wrong", metadata_request()[4:]])
async def test_bad_bare_message_closes_the_connection(
    secured: SecuredBroker, message: bytes
) -> None:
    stream = await bare(secured, "PLAIN")
    await stream.send(message)
    assert await stream.wait_closed() == b""
    await stream.close()


async def test_request_sent_within_a_login_waits_for_its_end(secured: SecuredBroker) -> None:
    token = SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
    message = b"".join(request_frame(SASL_AUTHENTICATE, 2, 1, "test", token))
    stream = await RawStream.connect(secured.address("sasl_plaintext"))
    await stream.send_bytes(handshake(1, "PLAIN") + message + metadata_request())
    await stream.receive()
    answer = read_response(SASL_AUTHENTICATE, 2, memoryview(await stream.receive()))
    assert answer.error_code is ErrorCode.NONE
    assert len(read_response(METADATA, 12, memoryview(await stream.receive())).brokers) == 1
    await stream.close()
