"""Delegation tokens: created by a user, used by its jobs, renewed and expired."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.client.tokens import DelegationToken
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
