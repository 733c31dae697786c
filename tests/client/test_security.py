"""TLS and SASL against the listeners of a real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.errors import ApiError, ConfigError, ErrorCode, Unavailable
from rookery.records.recordcodec import Record
from rookery.security.tls import ClientTls, KeyPair
from rookery.testing.certificates import Certificates
from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import LISTENERS, PASSWORD_MECHANISMS, KafkaSettings

RECORD = Record(None, b"x")
PASSWORD = "alice-secret"  # noqa: S105 (the fixture's)


def secure(
    kafka: KafkaServer, listener: str, sasl: Sasl | None = None, tls: ClientTls | None = None
) -> Client:
    """Make a client for a listener, which trusts the right authority unless told otherwise."""
    if tls is None and listener.endswith("SSL"):
        tls = ClientTls(ca_file=str(kafka.certificates.ca))
    return Client(
        ClientSettings(
            bootstrap=kafka.address(listener), sasl=sasl, tls=tls, call_timeout_ms=10_000
        )
    )


async def round_trip(client: Client, topic: str) -> None:
    """Produce and read, each over a connection of its own."""
    await client.create_topic(topic, 1, 1)
    await client.produce(topic, b"hello")
    assert [record.value async for record in client.read(topic, 0)] == [b"hello"]


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
async def test_every_mechanism_authenticates(
    kafka_secure: KafkaServer, new_name: Callable[[], str], listener: str, mechanism: str
) -> None:
    async with secure(kafka_secure, listener, Sasl(mechanism, "alice", PASSWORD)) as client:
        await round_trip(client, new_name())


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
async def test_refused_login_is_reported_immediately(
    kafka_secure: KafkaServer, mechanism: str, user: str, password: str
) -> None:
    async with secure(kafka_secure, "SASL_SSL", Sasl(mechanism, user, password)) as client:
        with pytest.raises(ApiError, match=f"refused user '{user}' by {mechanism}") as caught:
            await client.admin.describe_cluster()
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert password not in str(caught.value)


@pytest.mark.usefixtures("own_kafka")
async def test_mechanism_that_the_broker_does_not_offer_is_reported(
    new_name: Callable[[], str],
) -> None:
    settings = KafkaSettings(
        listeners=("SASL_PLAINTEXT",),
        users={"alice": PASSWORD},
        properties={
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        },
    )
    with KafkaServer(settings) as kafka:
        sasl = Sasl("SCRAM-SHA-256", "alice", PASSWORD)
        async with secure(kafka, "SASL_PLAINTEXT", sasl) as client:
            with pytest.raises(ApiError, match=r"does not offer SCRAM-SHA-256.*offers: PLAIN"):
                await client.admin.describe_cluster()


async def test_tls_works_without_a_login(
    kafka_secure: KafkaServer, new_name: Callable[[], str]
) -> None:
    async with secure(kafka_secure, "SSL") as client:
        await round_trip(client, new_name())


async def test_client_certificate_is_accepted(
    kafka_secure: KafkaServer, new_name: Callable[[], str]
) -> None:
    files = kafka_secure.certificates
    tls = ClientTls(ca_file=str(files.ca), own=KeyPair(str(files.client)))
    async with secure(kafka_secure, "SSL", tls=tls) as client:
        await round_trip(client, new_name())


async def test_untrusted_broker_is_refused(kafka_secure: KafkaServer, tmp_path: Path) -> None:
    others = Certificates.make(tmp_path, "127.0.0.1")
    async with secure(kafka_secure, "SSL", tls=ClientTls(ca_file=str(others.ca))) as client:
        with pytest.raises(ConfigError, match="its certificate is refused"):
            await client.admin.describe_cluster()


async def test_plaintext_to_a_tls_listener_is_reported(kafka_secure: KafkaServer) -> None:
    async with Client(kafka_secure.address("SSL")) as client:
        with pytest.raises(Unavailable, match="if this listener speaks TLS, set `tls`"):
            await client.admin.describe_cluster(timeout_ms=1_500)


async def test_tls_to_a_plaintext_listener_is_reported(kafka_secure: KafkaServer) -> None:
    tls = ClientTls(ca_file=str(kafka_secure.certificates.ca))
    settings = ClientSettings(bootstrap=kafka_secure.bootstrap, tls=tls, connect_timeout_ms=1_000)
    async with Client(settings) as client:
        with pytest.raises(Unavailable, match=kafka_secure.bootstrap):
            await client.admin.describe_cluster(timeout_ms=2_500)


async def test_missing_login_is_reported(kafka_secure: KafkaServer) -> None:
    tls = ClientTls(ca_file=str(kafka_secure.certificates.ca))
    async with secure(kafka_secure, "SASL_SSL", tls=tls) as client:
        with pytest.raises(Unavailable, match="if this listener wants a login, set `sasl`"):
            await client.admin.describe_cluster(timeout_ms=1_500)


@pytest.mark.usefixtures("own_kafka")
async def test_login_is_renewed_before_it_expires(new_name: Callable[[], str]) -> None:
    settings = KafkaSettings(
        listeners=LISTENERS,
        users={"alice": PASSWORD},
        properties={"connections.max.reauth.ms": "5000"},
    )
    with KafkaServer(settings) as kafka:
        sasl = Sasl("SCRAM-SHA-512", "alice", PASSWORD)
        async with secure(kafka, "SASL_PLAINTEXT", sasl) as client:
            topic, sent = new_name(), 0
            await client.create_topic(topic, 1, 1)
            began = client.clock.monotonic_ms()
            async with client.producer() as producer:
                while client.clock.monotonic_ms() - began < 11_000:
                    for delivery in [await producer.send(topic, RECORD) for _ in range(20)]:
                        await delivery.wait()
                        sent += 1
                    await client.admin.describe_cluster()
                assert producer.retried_batches == 0, "no broker had to hang up on us"
            assert len([record async for record in client.read(topic, 0)]) == sent
