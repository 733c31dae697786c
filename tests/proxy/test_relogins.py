"""Logins that expire (KIP-368), at the proxy and through it: clients renew them and lose nothing.

`test_security.py` has the renewal of the proxy's own login at the upstream.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rookery.errors import ErrorCode, Unavailable
from rookery.net.connection import Connection
from rookery.net.upstream import Upstream, connect
from rookery.proxy.filterapi import FORWARD, Filter, FilterContext, Verdict, on_request
from rookery.proxy.settings import ProxySettings
from rookery.service.listen.listenersettings import ListenerSecurity
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST
from rookery.testing.properties import KafkaSettings
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.message import Message
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from tests.broker.secured import PASSWORD, USER, serve_secured
from tests.proxy.test_mirror import read
from tests.proxy.test_security import served

SESSION_MS = 500
LOGINS = 3
"""The number of logins on one connection after which a test ends."""
TIMEOUT_MS = 20_000
LOGIN = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


class PassingLogins(Filter):
    """Counts the logins that each client sends to the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    @on_request(SASL_AUTHENTICATE)
    def count(self, context: FilterContext, request: Message) -> Verdict:
        context.memory[self] = context.memory.get(self, 0) + 1
        self.most = max(self.most, context.memory[self])
        return FORWARD


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[ServedProxy]:
    """A proxy at which clients log in for half a second, before an open listener."""
    users = tmp_path / "users.toml"
    users.touch(mode=0o600)
    users.write_text(f'[{USER}]\npassword = "{PASSWORD}"\n')
    security = ListenerSecurity(mechanisms="PLAIN", max_session_ms=SESSION_MS)
    with (
        serve_secured(tmp_path) as broker,
        served(
            broker.address("plaintext"), "sasl_plaintext", users_file=str(users), security=security
        ) as proxy,
    ):
        yield proxy


def work_until(bootstrap: str, is_renewed: Callable[[], bool]) -> None:
    """Write until logins were renewed; then check that all arrived once, in order."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, **LOGIN}
    errors: list[object] = []
    producer = Producer({**config, "enable.idempotence": True})
    topic, sent = f"t-{uuid4().hex[:8]}", 0
    while not is_renewed():
        value = b"%d" % sent
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: errors.append(error)
        )
        sent += 1
        producer.poll(0.02)
    assert producer.flush(20) == 0
    assert errors == [None] * sent
    consumer = Consumer({**config, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in read(consumer, sent)]
    consumer.close()
    assert values == [b"%d" % number for number in range(sent)]


def most_logins(lines: Iterable[logging.LogRecord]) -> int:
    """Return the highest number of logins on one connection that were logged."""
    text = f"login of User:{USER}"
    peers = Counter(getattr(line, "client", "") for line in lines if line.getMessage() == text)
    return max(peers.values(), default=0)


def test_logins_at_the_proxy_are_renewed(
    closed: ServedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")

    work_until(closed.bootstrap, lambda: most_logins(caplog.records) >= LOGINS)

    assert "has expired" not in caplog.text


def test_logins_at_the_broker_are_renewed_through_the_proxy(tmp_path: Path) -> None:
    logins = PassingLogins()
    with (
        serve_secured(tmp_path, max_session_ms=SESSION_MS) as broker,
        ServedProxy(broker.address("sasl_plaintext"), ProxySettings(), [logins]) as proxy,
    ):
        work_until(proxy.bootstrap, lambda: logins.most >= LOGINS)


def test_logins_at_kafka_are_renewed_through_the_proxy(own_kafka: None) -> None:
    logins = PassingLogins()
    settings = KafkaSettings(
        listeners=("PLAINTEXT", "SASL_PLAINTEXT"),
        users={USER: PASSWORD},
        properties={"connections.max.reauth.ms": "1500"},
    )
    with (
        KafkaServer(settings) as kafka,
        ServedProxy(kafka.address("SASL_PLAINTEXT"), ProxySettings(), [logins]) as proxy,
    ):
        work_until(proxy.bootstrap, lambda: logins.most >= LOGINS)


@asynccontextmanager
async def logged_in(port: int) -> AsyncIterator[Upstream]:
    """Connect to a port and log in."""
    connection = await connect(HOST, port)
    try:
        chosen = await connection.call(
            SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), TIMEOUT_MS
        )
        assert chosen.error_code is ErrorCode.NONE
        assert await log_in(connection) == SESSION_MS
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


async def log_in(connection: Upstream) -> int:
    """Log in; return how long that is valid."""
    token = f"\0{USER}\0{PASSWORD}".encode()
    answer = await connection.call(
        SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token), TIMEOUT_MS
    )
    assert answer.error_code is ErrorCode.NONE
    return answer.session_lifetime_ms


async def read_metadata(connection: Upstream) -> None:
    await connection.call(METADATA, 12, MetadataRequest(topics=[]), TIMEOUT_MS)


async def expire(connections: Iterable[Connection]) -> None:
    """Let the login of every client end now."""
    for connection in connections:
        connection.session.expires_ms = 1


async def test_expired_login_at_the_proxy_closes_the_connection(closed: ServedProxy) -> None:
    async with logged_in(closed.port) as connection:
        await read_metadata(connection)
        [cluster] = closed.proxy.clusters
        closed.do(expire(cluster.links))
        with pytest.raises(Unavailable):
            await read_metadata(connection)


async def test_expired_login_at_the_broker_closes_the_connection(tmp_path: Path) -> None:
    with (
        serve_secured(tmp_path, max_session_ms=SESSION_MS) as broker,
        ServedProxy(broker.address("sasl_plaintext")) as proxy,
    ):
        async with logged_in(proxy.port) as connection:
            for listener in broker.broker.ports.listeners:
                broker.do(expire(listener.connections))
            with pytest.raises(Unavailable):
                await read_metadata(connection)
