"""Delegation tokens of a real Kafka's directory: they work here, and those from here work there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.broker.settings import DEFAULT_LISTEN, BrokerSettings
from rookery.broker.tokens.settings import DelegationTokenSettings
from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.client.tokens import DelegationToken
from rookery.errors import ApiError, ErrorCode
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.properties import KafkaSettings
from rookery.testing.servedbroker import ServedBroker

KEY = "a-key-of-tokens"
USERS = {"alice": "alice-secret"}
ALICE = Sasl("SCRAM-SHA-256", "alice", USERS["alice"])


@pytest.fixture
def kafka(own_kafka: None, tmp_path: Path) -> Iterator[KafkaServer]:
    settings = KafkaSettings(
        listeners=("SASL_PLAINTEXT",),
        users=USERS,
        properties={"delegation.token.secret.key": KEY},
    )
    with KafkaServer(settings, folder=tmp_path / "kafka") as server:
        yield server


@contextmanager
def served(folder: Path, key_file: str) -> Iterator[str]:
    """Serve a directory; return the address of its listener for logins."""
    port = free_port()
    settings = BrokerSettings(
        log_dir=str(folder), delegation_tokens=DelegationTokenSettings(secret_file=key_file)
    )
    broker = ServedBroker(folder.parent / "unused", settings)
    listeners = {
        "PLAINTEXT": ListenerConfig(listen=broker.bootstrap),
        "SASL": ListenerConfig(listen=f"sasl_plaintext://{HOST}:{port}"),
    }
    broker.settings = replace(broker.settings, listen=DEFAULT_LISTEN, listeners=listeners)
    with broker:
        yield f"{HOST}:{port}"


def connect(address: str, sasl: Sasl) -> Client:
    return Client(ClientSettings(bootstrap=address, sasl=sasl))


async def log_in(address: str, token: DelegationToken) -> None:
    sasl = Sasl("SCRAM-SHA-512", token.token_id, token.password, is_delegation_token=True)
    async with connect(address, sasl) as client:
        await client.admin.describe_cluster()


async def test_tokens_move_with_the_directory(kafka: KafkaServer, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    address = kafka.address("SASL_PLAINTEXT")
    async with connect(address, ALICE) as client:
        theirs = await client.tokens.create(renewers=["User:bob"])
        gone = await client.tokens.create()
    kafka.stop()

    with served(kafka.data, str(key_file)) as ours_address:
        async with connect(ours_address, ALICE) as client:
            assert set(await client.tokens.describe()) == {theirs, gone}
            await client.tokens.expire(gone.hmac)
            renewed_ms = await client.tokens.renew(theirs.hmac, 3_600_000)
            ours = await client.tokens.create()
        await log_in(ours_address, theirs)
        await log_in(ours_address, ours)
    with served(kafka.data, str(key_file)) as ours_address:
        await log_in(ours_address, ours)

    kafka.start()
    async with connect(address, ALICE) as client:
        tokens = await client.tokens.describe()
    assert set(tokens) == {replace(theirs, expires_ms=renewed_ms), ours}
    await log_in(address, theirs)
    await log_in(address, ours)


async def test_directory_has_no_tokens_without_a_key(kafka: KafkaServer) -> None:
    kafka.stop()
    with served(kafka.data, "") as address:
        async with connect(address, ALICE) as client:
            with pytest.raises(ApiError) as caught:
                await client.tokens.create()
    assert caught.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
