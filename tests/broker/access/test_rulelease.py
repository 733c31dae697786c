"""A broker that is cut off from the cluster log decides by its rules until its lease has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rookery.broker.rulelease import OUTDATED
from rookery.broker.settings import BrokerSettings
from rookery.clock import SystemClock
from rookery.cluster.events.brokerevents import BrokerBeat
from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import Rule, TestedServer, UserConnection
from tests.broker.secured import serve_secured
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

LEASE_MS = 3_600_000
TOPIC = MetadataRequest(topics=[MetadataRequestTopic(name="mine")])
MAY_DESCRIBE = Rule(type=2, name="mine", operation=8)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path, access_lease_ms=LEASE_MS) as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server)
        server.ensure_topic("mine")
        server.set_rules([MAY_DESCRIBE])
        yield broker


async def end_lease(broker: ServedBroker) -> None:
    """Let the broker be silent for as long as its lease."""
    member = broker.broker.member
    assert member._beating is not None
    member._beating.cancel()
    member._lease_ends_ms -= LEASE_MS


async def beat(broker: GuardedBroker) -> None:
    await broker.broker.replica.propose([BrokerBeat()])


def describe(user: UserConnection) -> object:
    answer = user.ask(METADATA, 12, TOPIC)
    return answer.topics[0].error_code if isinstance(answer, MetadataResponse) else answer


def test_clients_with_rules_are_served_again_after_the_lease_is_renewed(
    broker: GuardedBroker,
) -> None:
    alice = UserConnection(broker.login_port, "alice", USERS["alice"])
    admin = UserConnection(broker.login_port, "admin", USERS["admin"])
    stranger = UserConnection(broker.login_port, "prober", USERS["prober"])
    with closing(alice), closing(admin), closing(stranger):
        assert [describe(user) for user in (alice, admin)] == [ErrorCode.NONE] * 2
        broker.do(end_lease(broker))
        before = OUTDATED.value

        # Its rule may have been removed since.
        assert describe(alice) == "closed"
        assert describe(admin) is ErrorCode.NONE
        # The login has no answer: to clients, a failed one is final.
        with pytest.raises(AssertionError):
            describe(stranger)
        assert OUTDATED.value == before + 2

        broker.do(beat(broker))
        assert describe(alice) is ErrorCode.NONE


class TokenConnection(UserConnection):
    """A connection of a user that logs in with a bearer token."""

    mechanism = "OAUTHBEARER"

    def __init__(self, port: int, token: str) -> None:
        super().__init__(port, "", "")
        self._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def test_bearer_tokens_are_accepted_after_the_lease_but_rules_are_not_applied(
    tmp_path: Path,
) -> None:
    """The cluster log has nothing about the users of tokens, only about what they may do."""
    issuer = Issuer(SystemClock().now_ms())
    options = {
        "authorizer": "acls", "super_users": "User:ANONYMOUS;User:root",
        "access_lease_ms": LEASE_MS,
    }  # fmt: skip
    tokens = {
        "mechanisms": "OAUTHBEARER", "oauth_issuer": ISSUER, "oauth_audience": AUDIENCE,
        "oauth_jwks": str(issuer.write(tmp_path / "jwks.json")),
    }  # fmt: skip
    with serve_secured(tmp_path, options, **tokens) as broker:
        port = int(broker.address("sasl_plaintext").rpartition(":")[2])
        server = TestedServer(broker.address("plaintext"), port)
        server.ensure_topic("mine")
        server.set_rules([MAY_DESCRIBE])
        alice = TokenConnection(port, issuer.token(sub="alice"))
        root = TokenConnection(port, issuer.token(sub="root"))
        with closing(alice), closing(root):
            assert describe(alice) is ErrorCode.NONE
            broker.do(end_lease(broker))

            assert describe(alice) == "closed"
            # It logs in again, and is refused by its first request.
            assert describe(alice) == "closed"
            assert describe(root) is ErrorCode.NONE


@pytest.mark.parametrize(("beat_ms", "lease_ms"), [(1_000, 20_000), (10_000, 30_000)])
def test_lease_is_as_long_as_the_setting_and_at_least_three_beats(
    beat_ms: int, lease_ms: int
) -> None:
    settings = BrokerSettings(beat_interval_ms=beat_ms)
    assert settings.access_lease_ms == 20_000
    assert settings.member().lease_ms == lease_ms
