"""Delegation tokens compared with a real Kafka: the same requests get the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rookery.clock import SystemClock
from rookery.errors import ErrorCode
from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings
from rookery.testing.wait import wait_until
from rookery.wire.messages.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from rookery.wire.messages.describe_delegation_token import (
    DESCRIBE_DELEGATION_TOKEN,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from rookery.wire.messages.expire_delegation_token import (
    EXPIRE_DELEGATION_TOKEN,
    ExpireDelegationTokenRequest,
)
from rookery.wire.messages.renew_delegation_token import (
    RENEW_DELEGATION_TOKEN,
    RenewDelegationTokenRequest,
)
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import Rule, TestedServer, UserConnection

KEY = "a-key-of-tokens"
EVERYONE = {**USERS, "bob": "bob-secret"}
TOKEN_, USER_ = 6, 7
DESCRIBE, CREATE_TOKENS, DESCRIBE_TOKENS = 8, 13, 14
LONG_MS = 2**62


class TokenServer:
    """A server with tokens, and connections of its users."""

    def __init__(self, server: TestedServer) -> None:
        self.server = server
        self.users = {
            name: UserConnection(server.port, name, word) for name, word in EVERYONE.items()
        }

    def close(self) -> None:
        for user in self.users.values():
            user.close()

    def create(
        self,
        user: str,
        *,
        owner: str = "",
        renewers: tuple[str, ...] = (),
        lifetime_ms: int = -1,
        version: int = 3,
    ) -> Any:
        owner_kind, _, owner_name = owner.partition(":")
        request = CreateDelegationTokenRequest(
            owner_principal_type=owner_kind or None,
            owner_principal_name=owner_name if owner else None,
            renewers=[
                CreatableRenewers(
                    principal_type=renewer.split(":")[0], principal_name=renewer.split(":")[1]
                )
                for renewer in renewers
            ],
            max_lifetime_ms=lifetime_ms,
        )
        answer: Any = self.users[user].ask(CREATE_DELEGATION_TOKEN, version, request)
        if answer.error_code is ErrorCode.NONE:
            self.wait_for(answer, lambda token: token is not None)
        return answer

    def wait_for(
        self,
        token: CreateDelegationTokenResponse,
        accepts: Callable[[DescribedDelegationToken | None], bool],
    ) -> None:
        """Wait until all of the server knows a change: Kafka answers before it does."""

        def look() -> DescribedDelegationToken | None:
            matches = [row for row in self.tokens("admin") if row.token_id == token.token_id]
            return matches[0] if matches else None

        wait_until(look, accepts=accepts)

    def tokens(self, user: str, owners: list[str] | None = None) -> list[DescribedDelegationToken]:
        named = None
        if owners is not None:
            named = [
                DescribeDelegationTokenOwner(principal_type="User", principal_name=owner)
                for owner in owners
            ]
        request = DescribeDelegationTokenRequest(owners=named)
        answer: Any = self.users[user].ask(DESCRIBE_DELEGATION_TOKEN, 3, request)
        assert answer.error_code is ErrorCode.NONE
        tokens: list[DescribedDelegationToken] = answer.tokens
        return tokens

    def seen(self, user: str, owners: list[str] | None = None) -> list[tuple[str, ...]]:
        """Return owner, requester and renewers of each token that a user sees."""
        return sorted(
            (
                f"{token.principal_type}:{token.principal_name}",
                f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
                *(f"{each.principal_type}:{each.principal_name}" for each in token.renewers),
            )
            for token in self.tokens(user, owners)
        )

    def renew(self, user: str, hmac: bytes, period_ms: int = -1) -> Any:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return self.users[user].ask(RENEW_DELEGATION_TOKEN, 2, request)

    def expire(self, user: str, hmac: bytes, period_ms: int = -1) -> Any:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return self.users[user].ask(EXPIRE_DELEGATION_TOKEN, 2, request)

    def clear(self) -> None:
        """Remove all tokens and rules."""
        for token in self.tokens("admin"):
            self.expire(token.principal_name, bytes(token.hmac))
        wait_until(lambda: not self.tokens("admin"))
        self.server.set_rules([])


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server, EVERYONE)
        tokens = TokenServer(server)
        yield tokens
        tokens.close()


@pytest.fixture(scope="module")
def theirs(own_kafka: None) -> Iterator[TokenServer]:
    settings = KafkaSettings(
        listeners=("SASL_PLAINTEXT",),
        users=EVERYONE,
        properties={
            "allow.everyone.if.no.acl.found": "false",
            "delegation.token.secret.key": KEY,
        },
    )
    with KafkaServer(settings) as kafka:
        tokens = TokenServer(TestedServer(kafka.bootstrap, kafka.port("SASL_PLAINTEXT")))
        yield tokens
        tokens.close()


def created(token: Any) -> tuple[Any, ...]:
    """Return what servers do not choose of a created token."""
    is_made = token.error_code is ErrorCode.NONE
    return (
        token.error_code,
        token.principal_type,
        token.principal_name,
        token.token_requester_principal_type,
        token.token_requester_principal_name,
        token.expiry_timestamp - token.issue_timestamp,
        token.max_timestamp - token.issue_timestamp,
        len(token.token_id),
        len(bytes(token.hmac)),
        is_made or token.issue_timestamp,
    )


def creations(server: TokenServer) -> list[Any]:
    return [
        created(token)
        for token in (
            server.create("alice"),
            server.create("alice", version=1),
            server.create("alice", renewers=("User:bob",)),
            server.create("alice", renewers=("Group:g",)),
            server.create("alice", renewers=("Group:g",), version=1),
            server.create("alice", lifetime_ms=0),
            server.create("alice", lifetime_ms=5_000),
            server.create("alice", lifetime_ms=LONG_MS),
            server.create("alice", owner="User:alice"),
            server.create("alice", owner="User:"),
            server.create("alice", owner="User:bob"),
            server.create("alice", owner="User:bob", renewers=("Group:g",)),
            server.create("admin", owner="User:bob"),
        )
    ]


def creation_by_rule(server: TokenServer) -> list[Any]:
    answers = []
    for name, operation in (
        ("User:bob", CREATE_TOKENS),
        ("bob", CREATE_TOKENS),
        ("User:bob", DESCRIBE_TOKENS),
        ("*", CREATE_TOKENS),
    ):
        server.server.set_rules([Rule(USER_, name, operation)])
        answers.append(created(server.create("alice", owner="User:bob")))
    return answers


def renewals(server: TokenServer) -> list[Any]:
    token = server.create("alice", renewers=("User:bob",))
    other = server.create("alice", owner="User:alice", lifetime_ms=10_000)
    hmac = bytes(token.hmac)
    answers = [
        server.renew("alice", hmac),
        server.renew("alice", hmac, 0),
        server.renew("bob", hmac, 60_000),
        server.renew("alice", hmac, LONG_MS),
        server.renew("admin", hmac),
        server.renew("alice", b"no token"),
    ]
    limited = server.renew("alice", bytes(other.hmac))
    return [
        *((answer.error_code, about(answer.expiry_timestamp, token)) for answer in answers),
        (limited.error_code, limited.expiry_timestamp - other.issue_timestamp),
    ]


def about(expiry_ms: int, token: Any) -> int:
    """Return after how many minutes a token expires; 0 and -1 are not times."""
    return expiry_ms if expiry_ms <= 0 else round((expiry_ms - token.issue_timestamp) / 60_000)


def expiries(server: TokenServer) -> list[Any]:
    token = server.create("alice", renewers=("User:bob",))
    hmac = bytes(token.hmac)
    answers = [
        server.expire("admin", hmac),
        server.expire("admin", hmac, 60_000),
        server.expire("alice", b"no token"),
        server.expire("bob", hmac, 600_000),
        server.expire("alice", hmac, LONG_MS),
        server.expire("alice", hmac, 0),
    ]
    expires_ms, clock = answers[-1].expiry_timestamp, SystemClock()
    server.wait_for(token, lambda row: row is not None and row.expiry_timestamp == expires_ms)
    wait_until(lambda: clock.now_ms() > expires_ms)
    answers += [
        server.renew("alice", hmac),
        server.renew("admin", hmac),
        server.expire("alice", hmac, 60_000),
        server.expire("admin", hmac, 60_000),
        server.expire("admin", hmac),
        server.expire("bob", hmac),
    ]
    server.wait_for(token, lambda row: row is None)
    answers += [server.expire("alice", hmac), server.renew("alice", hmac)]
    return [(answer.error_code, about(answer.expiry_timestamp, token)) for answer in answers]


def sights(server: TokenServer) -> list[Any]:
    server.create("alice")
    server.create("alice", renewers=("User:bob",))
    server.create("bob")
    server.create("admin", owner="User:bob")
    seen = [
        server.seen(user, owners)
        for user in EVERYONE
        for owners in (None, [], ["alice"], ["bob"], ["admin"], ["alice", "bob"], ["nobody"])
    ]
    [hidden] = [token for token in server.tokens("bob", ["admin"]) if token.principal_name == "bob"]
    for rule in (
        Rule(TOKEN_, hidden.token_id, DESCRIBE),
        Rule(TOKEN_, "*", DESCRIBE),
        Rule(USER_, "User:bob", DESCRIBE_TOKENS),
        Rule(USER_, "User:bob", DESCRIBE),
        Rule(USER_, "*", DESCRIBE_TOKENS),
    ):
        server.server.set_rules([rule])
        seen.append(server.seen("alice"))
    return seen


@pytest.mark.parametrize("scenario", [creations, creation_by_rule, renewals, expiries, sights])
def test_tokens_get_the_answers_of_kafka(
    ours: TokenServer, theirs: TokenServer, scenario: Callable[[TokenServer], list[Any]]
) -> None:
    answers = []
    for server in (ours, theirs):
        server.clear()
        answers.append(scenario(server))
    assert answers[0] == answers[1]


def test_anonymous_clients_get_the_answers_of_kafka(ours: TokenServer, theirs: TokenServer) -> None:
    creation = CreateDelegationTokenRequest(
        owner_principal_type="User",
        owner_principal_name="bob",
        renewers=[CreatableRenewers(principal_type="Group", principal_name="g")],
    )
    answers = [
        [
            server.server.ask(CREATE_DELEGATION_TOKEN, 3, creation),
            server.server.ask(RENEW_DELEGATION_TOKEN, 2, RenewDelegationTokenRequest(hmac=b"x")),
            server.server.ask(EXPIRE_DELEGATION_TOKEN, 2, ExpireDelegationTokenRequest(hmac=b"x")),
            server.server.ask(DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest()),
        ]
        for server in (ours, theirs)
    ]
    assert answers[0] == answers[1]
