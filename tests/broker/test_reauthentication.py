"""Logins that expire (KIP-368): clients log in again on the same connection, and lose nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.errors import ErrorCode, Unavailable
from rookery.net.upstream import Upstream, connect
from rookery.records.recordcodec import Record
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from tests.broker.secured import PASSWORD, USER, SecuredBroker, serve_secured

SESSION_MS = 1_000
LOGINS = 3
"""The number of logins on one connection after which a test ends."""
TIMEOUT_MS = 20_000
LOGIN = f"login of User:{USER}"
TOKEN = f"\0{USER}\0{PASSWORD}".encode()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    with serve_secured(tmp_path, max_session_ms=SESSION_MS) as broker:
        yield broker


@asynccontextmanager
async def upstream(broker: SecuredBroker) -> AsyncIterator[Upstream]:
    host, _, port = broker.address("sasl_plaintext").rpartition(":")
    connection = await connect(host, int(port))
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


async def log_in(connection: Upstream, token: bytes = TOKEN) -> tuple[ErrorCode, int]:
    request = SaslHandshakeRequest(mechanism="PLAIN")
    chosen = await connection.call(SASL_HANDSHAKE, 1, request, TIMEOUT_MS)
    assert chosen.error_code is ErrorCode.NONE
    message = SaslAuthenticateRequest(auth_bytes=token)
    answer = await connection.call(SASL_AUTHENTICATE, 2, message, TIMEOUT_MS)
    return answer.error_code, answer.session_lifetime_ms


async def read_metadata(connection: Upstream) -> None:
    await connection.call(METADATA, 12, MetadataRequest(topics=[]), TIMEOUT_MS)


def expire(broker: SecuredBroker) -> None:
    """Let the login of every client end now."""

    async def change() -> None:
        for listener in broker.broker.ports.listeners:
            for connection in listener.connections:
                connection.session.expires_ms = 1

    broker.do(change())


def most_logins(caplog: pytest.LogCaptureFixture, user: str = USER) -> int:
    """Return the highest number of logins of a user on one connection."""
    text = f"login of User:{user}"
    counts = Counter(
        getattr(line, "client", "") for line in caplog.records if line.getMessage() == text
    )
    return max(counts.values(), default=0)


async def test_expired_login_closes_the_connection(secured: SecuredBroker) -> None:
    async with upstream(secured) as connection:
        assert await log_in(connection) == (ErrorCode.NONE, SESSION_MS)
        await read_metadata(connection)
        expire(secured)
        with pytest.raises(Unavailable):
            await read_metadata(connection)


async def test_login_after_the_expiry_extends_the_session(secured: SecuredBroker) -> None:
    async with upstream(secured) as connection:
        await log_in(connection)
        expire(secured)
        assert await log_in(connection) == (ErrorCode.NONE, SESSION_MS)
        await read_metadata(connection)


async def test_failed_second_login_closes_the_connection(secured: SecuredBroker) -> None:
    async with upstream(secured) as connection:
        await log_in(connection)
        code, _ = await log_in(connection, b"\0alice\0wrong")
        assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(Unavailable):
            await read_metadata(connection)


async def test_second_login_cannot_change_the_user(secured: SecuredBroker) -> None:
    secured.add_user("bob", "bob-secret")
    async with upstream(secured) as connection:
        await log_in(connection)
        code, _ = await log_in(connection, b"\0bob\0bob-secret")
        assert code is ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(Unavailable):
            await read_metadata(connection)


async def test_second_login_cannot_change_the_mechanism(secured: SecuredBroker) -> None:
    async with upstream(secured) as connection:
        await log_in(connection)
        request = SaslHandshakeRequest(mechanism="SCRAM-SHA-256")
        answer = await connection.call(SASL_HANDSHAKE, 1, request, TIMEOUT_MS)
        assert answer.error_code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        with pytest.raises(Unavailable):
            await read_metadata(connection)


def test_librdkafka_loses_nothing_while_its_logins_are_renewed(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    errors: list[object] = []
    producer = Producer(
        secured.librdkafka("sasl_ssl", "SCRAM-SHA-256", **{"enable.idempotence": True})
    )
    sent = 0
    while most_logins(caplog) < LOGINS:
        for _ in range(20):
            producer.produce("t", b"%d" % sent, on_delivery=lambda error, _: errors.append(error))
            sent += 1
        producer.poll(0.02)
    assert producer.flush(20) == 0
    assert errors == [None] * sent
    consumer = Consumer(secured.librdkafka("sasl_ssl", "SCRAM-SHA-256", **{"group.id": "g"}))
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    while len(values) < sent:
        values += [message.value() or b"" for message in consumer.consume(sent, 1)]
    consumer.close()
    assert values == [b"%d" % number for number in range(sent)]
    assert "has expired" not in caplog.text


def test_librdkafka_consumer_loses_and_doubles_nothing_while_its_logins_are_renewed(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    secured.add_user("bob", PASSWORD)
    errors: list[object] = []
    reported = {"error_cb": errors.append}
    producer = Producer(
        secured.librdkafka("sasl_ssl", "SCRAM-SHA-256", **{"enable.idempotence": True}, **reported)
    )
    reader = {"sasl.username": "bob", "group.id": "g", "auto.offset.reset": "earliest", **reported}
    consumer = Consumer(secured.librdkafka("sasl_ssl", "SCRAM-SHA-512", **reader))
    producer.produce("t", b"0")
    assert producer.flush(20) == 0
    consumer.subscribe(["t"])
    sent, values = 1, list[bytes]()
    while most_logins(caplog, "bob") < LOGINS:
        producer.produce("t", b"%d" % sent)
        sent += 1
        producer.poll(0.01)
        values += [message.value() or b"" for message in consumer.consume(100, 0.01)]
    assert producer.flush(20) == 0
    while len(values) < sent:
        values += [message.value() or b"" for message in consumer.consume(sent, 1)]
    consumer.close()
    assert values == [b"%d" % number for number in range(sent)]
    assert errors == []
    assert "has expired" not in caplog.text


async def test_own_client_loses_nothing_while_its_logins_are_renewed(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    settings = secured.client("sasl_ssl", Sasl("SCRAM-SHA-512", USER, PASSWORD))
    async with Client(settings) as client:
        await client.create_topic("t", 1, 1)
        sent, began = 0, caplog.text.count(LOGIN)
        async with client.producer() as producer:
            while caplog.text.count(LOGIN) - began < LOGINS:
                deliveries = [await producer.send("t", Record(None, b"x")) for _ in range(20)]
                await asyncio.gather(*(delivery.wait() for delivery in deliveries))
                sent += len(deliveries)
            assert producer.retried_batches == 0
        assert len([record async for record in client.read("t", 0)]) == sent
    assert "has expired" not in caplog.text
