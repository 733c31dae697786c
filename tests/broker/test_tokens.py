"""Logins with bearer tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Producer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaTokenProvider

from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.clock import SystemClock
from rookery.errors import ApiError, ConfigError, ErrorCode
from tests.broker.secured import SecuredBroker, serve_secured
from tests.kafkapython import KafkaProducer
from tests.security.tokens import AUDIENCE, ISSUER, Issuer


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(SystemClock().now_ms())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("tokens")
    settings: dict[str, Any] = {
        "mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "oauth_jwks": str(issuer.write(folder / "jwks.json")),
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
    }
    with serve_secured(folder, **settings) as broker:
        yield broker


@pytest.mark.parametrize("listener", ["sasl_plaintext", "sasl_ssl"])
async def test_own_client_logs_in_with_a_token(
    secured: SecuredBroker, issuer: Issuer, listener: str
) -> None:
    sasl = Sasl("OAUTHBEARER", token=issuer.token())
    async with Client(secured.client(listener, sasl)) as client:
        await client.admin.describe_cluster()


async def test_own_client_reads_the_token_from_a_file(
    secured: SecuredBroker, issuer: Issuer, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(issuer.token() + "\n")
    sasl = Sasl("OAUTHBEARER", token_file=str(path))
    async with Client(secured.client("sasl_ssl", sasl)) as client:
        await client.admin.describe_cluster()


async def test_token_of_another_issuer_is_refused(secured: SecuredBroker, issuer: Issuer) -> None:
    sasl = Sasl("OAUTHBEARER", token=issuer.token(iss="https://other.example"))
    async with Client(secured.client("sasl_ssl", sasl)) as client:
        with pytest.raises(ApiError, match="refused the token by OAUTHBEARER") as caught:
            await client.admin.describe_cluster()
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_session_ends_with_the_token(secured: SecuredBroker, issuer: Issuer) -> None:
    expires_ms = SystemClock().now_ms() + 60_000
    sasl = Sasl("OAUTHBEARER", token=issuer.token(exp=expires_ms // 1000))
    async with Client(secured.client("sasl_ssl", sasl)) as client:
        await client.admin.describe_cluster()

        async def sessions() -> list[int]:
            return [
                connection.session.expires_ms
                for listener in secured.broker.ports.listeners
                for connection in listener.connections
                if connection.session.principal == "User:alice"
            ]

        limits = [end - SystemClock().monotonic_ms() for end in secured.do(sessions())]
    assert limits
    assert all(0 < limit <= 91_000 for limit in limits)


def test_librdkafka_logs_in_with_a_token(secured: SecuredBroker, issuer: Issuer) -> None:
    expires = SystemClock().now_ms() / 1000 + 300
    config = secured.librdkafka("sasl_ssl")
    config |= {
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (issuer.token(), expires),
    }
    producer, errors = Producer(config), list[object]()
    producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]


def test_kafka_python_logs_in_with_a_token(secured: SecuredBroker, issuer: Issuer) -> None:
    class Provider(KafkaTokenProvider):  # type: ignore[misc]  # it has no types
        def token(self) -> str:
            return issuer.token("RS256")

    producer = KafkaProducer(
        bootstrap_servers=secured.address("sasl_ssl"),
        security_protocol="SASL_SSL",
        ssl_cafile=str(secured.files.ca),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert producer.send("t", b"x").get(20).offset >= 0
    producer.close()


async def test_aiokafka_logs_in_with_a_token(secured: SecuredBroker, issuer: Issuer) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
        async def token(self) -> str:
            return issuer.token()

    settings: dict[str, Any] = {
        "bootstrap_servers": secured.address("sasl_ssl"),
        "security_protocol": "SASL_SSL",
        "ssl_context": secured.trust(),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    async with AIOKafkaProducer(**settings) as producer:
        assert (await producer.send_and_wait("t", b"x")).offset >= 0


def test_missing_setting_is_an_error_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="oauth_jwks: must be set for OAUTHBEARER"),
        serve_secured(tmp_path, mechanisms="OAUTHBEARER"),
    ):
        pass
