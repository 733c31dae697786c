"""A delegation token that one broker changes counts on the other one when the answer arrives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.client.tokens import DelegationToken
from rookery.errors import ApiError, ErrorCode
from tests.broker.secured import PASSWORD, USER, SecuredBroker, serve_secured

ROUNDS = 10


@contextmanager
def serve_two(folder: Path) -> Iterator[tuple[SecuredBroker, SecuredBroker]]:
    with (
        serve_secured(folder) as first,
        SecuredBroker(folder / "data", first.settings, first.files) as second,
    ):
        yield first, second


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[SecuredBroker, SecuredBroker]]:
    with serve_two(tmp_path_factory.mktemp("tokens")) as brokers:
        yield brokers


def user(broker: SecuredBroker) -> Client:
    """Return a client that uses one of the brokers only."""
    return Client(broker.client("sasl_plaintext", Sasl("SCRAM-SHA-256", USER, PASSWORD)))


def known_expiry(broker: SecuredBroker, token_id: str) -> int | None:
    """Return when a token expires, as a broker knows it now; it does not read the log for this."""

    async def look() -> int | None:
        token = broker.broker.replica.state.security.tokens.get(token_id)
        return None if token is None else token.expires_ms

    return broker.do(look())


async def can_log_in(broker: SecuredBroker, token: DelegationToken) -> bool:
    sasl = Sasl("SCRAM-SHA-512", token.token_id, token.password, is_delegation_token=True)
    try:
        async with Client(broker.client("sasl_plaintext", sasl)) as client:
            await client.admin.describe_cluster()
    except ApiError as error:
        if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            return False
        raise
    return True


async def test_a_token_is_in_force_on_the_other_broker_before_the_answer(
    brokers: tuple[SecuredBroker, SecuredBroker],
) -> None:
    first, second = brokers
    seen: list[int | None] = []
    expected: list[int | None] = []
    async with user(first) as client:
        for _ in range(ROUNDS):
            token = await client.tokens.create(max_lifetime_ms=3_600_000)
            expected.append(token.expires_ms)
            seen.append(known_expiry(second, token.token_id))
            expires_ms = await client.tokens.expire(token.hmac, 60_000)
            expected.append(expires_ms)
            seen.append(known_expiry(second, token.token_id))
            expires_ms = await client.tokens.renew(token.hmac)
            expected.append(expires_ms)
            seen.append(known_expiry(second, token.token_id))
            await client.tokens.expire(token.hmac)
            expected.append(None)
            seen.append(known_expiry(second, token.token_id))
    assert seen == expected


async def test_a_token_of_one_broker_logs_in_on_the_other_until_it_is_removed(
    brokers: tuple[SecuredBroker, SecuredBroker],
) -> None:
    first, second = brokers
    async with user(first) as client:
        for _ in range(ROUNDS // 2):
            token = await client.tokens.create()
            admitted = await can_log_in(second, token)
            await client.tokens.expire(token.hmac)
            assert (admitted, await can_log_in(second, token)) == (True, False)
