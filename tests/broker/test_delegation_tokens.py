"""Delegation tokens: created by a user, used by its jobs, renewed and expired."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.broker.tokens.settings import DelegationTokenSettings
from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.client.tokens import DelegationToken
from rookery.clock import SystemClock
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.security.tls import ClientTls, KeyPair
from rookery.testing.wait import wait_until
from tests.broker.secured import PASSWORD, USER, SecuredBroker, serve_secured

ALICE = f"User:{USER}"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with serve_secured(tmp_path_factory.mktemp("tokens")) as broker:
        broker.add_user("bob", PASSWORD)
        broker.add_user("carol", PASSWORD)
        yield broker


def user(broker: SecuredBroker, name: str = USER, listener: str = "sasl_ssl") -> Client:
    return Client(broker.client(listener, Sasl("SCRAM-SHA-512", name, PASSWORD)))


def job(broker: SecuredBroker, token: DelegationToken, mechanism: str = "SCRAM-SHA-512") -> Client:
    sasl = Sasl(mechanism, token.token_id, token.password, is_delegation_token=True)
    return Client(broker.client("sasl_ssl", sasl))


def principals(broker: SecuredBroker) -> set[str | None]:
    """Return the principals of all clients that logged in with a token."""

    async def look() -> set[str | None]:
        return {
            connection.session.principal
            for listener in broker.broker.ports.listeners
            for connection in listener.connections
            if connection.session.has_delegation_token
        }

    return broker.do(look())


@pytest.mark.parametrize("mechanism", SCRAM)
async def test_client_with_a_token_is_its_owner(secured: SecuredBroker, mechanism: str) -> None:
    async with user(secured) as client:
        token = await client.tokens.create()

    async with job(secured, token, mechanism) as client:
        await client.admin.describe_cluster()
        assert principals(secured) == {ALICE}


async def code_of_refusal(client: Client, ask: Callable[[Client], Awaitable[object]]) -> ErrorCode:
    async with client:
        with pytest.raises(ApiError) as caught:
            await ask(client)
    return caught.value.code


async def test_plain_does_not_accept_a_token(secured: SecuredBroker) -> None:
    async with user(secured) as client:
        token = await client.tokens.create()

    sasl = Sasl("PLAIN", token.token_id, token.password)
    code = await code_of_refusal(
        Client(secured.client("sasl_ssl", sasl)), lambda client: client.admin.describe_cluster()
    )
    assert code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_token_is_not_a_user_and_user_is_not_a_token(secured: SecuredBroker) -> None:
    async with user(secured) as client:
        token = await client.tokens.create()

    for sasl in (
        Sasl("SCRAM-SHA-512", token.token_id, token.password),
        Sasl("SCRAM-SHA-512", USER, PASSWORD, is_delegation_token=True),
        Sasl("SCRAM-SHA-512", token.token_id, PASSWORD, is_delegation_token=True),
    ):
        code = await code_of_refusal(
            Client(secured.client("sasl_ssl", sasl)), lambda client: client.admin.describe_cluster()
        )
        assert code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_client_with_a_token_cannot_use_the_apis_of_tokens(secured: SecuredBroker) -> None:
    async with user(secured) as client:
        token = await client.tokens.create()

    for ask in (
        lambda client: client.tokens.create(),
        lambda client: client.tokens.describe(),
        lambda client: client.tokens.renew(token.hmac),
        lambda client: client.tokens.expire(token.hmac),
    ):
        code = await code_of_refusal(job(secured, token), ask)
        assert code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("listener", ["plaintext", "ssl"])
async def test_anonymous_client_gets_no_token(secured: SecuredBroker, listener: str) -> None:
    code = await code_of_refusal(
        Client(secured.client(listener)), lambda client: client.tokens.create()
    )
    assert code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_client_with_a_certificate_gets_a_token(secured: SecuredBroker) -> None:
    own = KeyPair(str(secured.files.client), None)
    tls = ClientTls(ca_file=str(secured.files.ca), own=own)
    async with Client(replace(secured.client("ssl"), tls=tls)) as client:
        token = await client.tokens.create()
    async with job(secured, token) as client:
        await client.admin.describe_cluster()
        assert principals(secured) == {token.owner}
    assert token.owner.startswith("User:CN=")


async def test_owner_of_another_kind_is_refused(secured: SecuredBroker) -> None:
    code = await code_of_refusal(
        user(secured), lambda client: client.tokens.create(owner="Group:g")
    )
    assert code is ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_expired_token_cannot_log_in(secured: SecuredBroker) -> None:
    async with user(secured) as client:
        token = await client.tokens.create()
        expires_ms = await client.tokens.expire(token.hmac, 0)
        assert expires_ms is not None
        wait_until(lambda: SystemClock().now_ms() > expires_ms)
        with pytest.raises(ApiError) as caught:
            await client.tokens.renew(token.hmac)
    assert caught.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED

    code = await code_of_refusal(
        job(secured, token), lambda client: client.admin.describe_cluster()
    )
    assert code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_session_ends_with_the_token(secured: SecuredBroker) -> None:
    async with user(secured) as client:
        token = await client.tokens.create(max_lifetime_ms=60_000)
    async with job(secured, token) as client:
        await client.admin.describe_cluster()

        async def look() -> list[int]:
            return [
                connection.session.expires_ms
                for listener in secured.broker.ports.listeners
                for connection in listener.connections
                if connection.session.has_delegation_token
            ]

        limits = [end - SystemClock().monotonic_ms() for end in secured.do(look())]
    assert limits
    assert all(0 < limit <= 60_000 for limit in limits)


async def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    with serve_secured(tmp_path) as broker:
        async with user(broker) as client:
            token = await client.tokens.create()
            copy = await client.tokens.describe()
    with SecuredBroker(tmp_path / "data", broker.settings, broker.files) as broker:
        async with user(broker) as client:
            assert copy == await client.tokens.describe() == [token]
        async with job(broker, token) as client:
            await client.admin.describe_cluster()


def with_tokens(broker: SecuredBroker, **values: object) -> SecuredBroker:
    """Return the broker with other settings of tokens, not started."""
    tokens = DelegationTokenSettings(**values)  # type: ignore[arg-type]  # settings by name
    settings = replace(broker.settings, delegation_tokens=tokens)
    return SecuredBroker(Path(broker.settings.data), settings, broker.files)


async def test_key_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("key of Kafka\n")
    with serve_secured(tmp_path) as broker:
        async with user(broker) as client:
            old = await client.tokens.create()
    with with_tokens(broker, secret_file=str(tmp_path / "key")) as broker:
        async with user(broker) as client:
            token = await client.tokens.create()
            [same] = [known for known in await client.tokens.describe() if known != token]
        async with job(broker, token) as client:
            await client.admin.describe_cluster()
        code = await code_of_refusal(
            job(broker, old), lambda connection: connection.admin.describe_cluster()
        )
    assert token.hmac == hmac.digest(b"key of Kafka", token.token_id.encode(), "sha512")
    assert same.token_id == old.token_id
    assert same.hmac != old.hmac
    assert code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_tokens_can_be_disabled(tmp_path: Path) -> None:
    with serve_secured(tmp_path) as broker:
        async with user(broker) as client:
            token = await client.tokens.create()
    with with_tokens(broker, enabled=False) as broker:
        for ask in (
            lambda client: client.tokens.create(),
            lambda client: client.tokens.describe(),
            lambda client: client.tokens.renew(token.hmac),
            lambda client: client.tokens.expire(token.hmac),
        ):
            code = await code_of_refusal(user(broker), ask)
            assert code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        code = await code_of_refusal(
            job(broker, token), lambda connection: connection.admin.describe_cluster()
        )
        assert code is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("content", [None, b"\n"])
def test_unusable_key_is_an_error_at_the_start(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with serve_secured(tmp_path) as broker:
        pass
    with (
        pytest.raises(ConfigError, match="secret_file"),
        with_tokens(broker, secret_file=str(tmp_path / "key")),
    ):
        pass


def read_folder(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_passwords_are_in_no_log_and_no_audit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    audit = tmp_path / "audit.jsonl"
    with serve_secured(tmp_path) as broker:
        pass
    settings = replace(broker.settings, audit_file=str(audit), log_level="debug")
    with SecuredBroker(Path(broker.settings.data), settings, broker.files) as broker:
        async with user(broker) as client:
            token = await client.tokens.create()
            await client.tokens.describe()
            await client.tokens.renew(token.hmac)
        async with job(broker, token) as client:
            await client.admin.describe_cluster()
        async with user(broker) as client:
            await client.tokens.expire(token.hmac)
        data = read_folder(Path(settings.data))

    rows = [json.loads(line) for line in audit.read_text().splitlines()]
    changes = [
        (row["api"], row["operation"], row["resource"]["name"])
        for row in rows
        if row["kind"] == "change"
    ]
    assert changes == [
        ("CreateDelegationToken", "CREATE_TOKENS", ALICE),
        ("RenewDelegationToken", "ALTER", token.token_id),
        ("ExpireDelegationToken", "DELETE", token.token_id),
    ]
    for secret in (token.password, token.hmac.hex(), repr(token.hmac)):
        assert secret not in caplog.text + audit.read_text()
    assert token.hmac not in data
    assert token.password.encode() not in data
    assert "hmac" not in repr(token)
