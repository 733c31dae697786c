"""Delegation tokens: events change the state, and images keep it."""

from __future__ import annotations

from random import Random

import pytest

from rookery.cluster.events.tokenevents import (
    DelegationTokenCreated,
    DelegationTokenExpired,
    DelegationTokenRenewed,
    DelegationTokenRevoked,
)
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.images.securityimage import security_image
from rookery.cluster.state.state import Outcome
from rookery.cluster.state.tokens import StoredToken
from rookery.errors import ErrorCode
from rookery.wire.message import Message
from tests.cluster.test_security_state import Cluster

ID, OTHER = "t", "other"
OWNER, REQUESTER, RENEWER, STRANGER = "User:o", "User:q", "User:r", "User:s"
TOKEN = StoredToken(OWNER, REQUESTER, (RENEWER,), 100, 200, 300)
NOT_FOUND = Outcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
EXPIRED = Outcome(ErrorCode.DELEGATION_TOKEN_EXPIRED)
MISMATCH = Outcome(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def token_event(token_id: str) -> DelegationTokenCreated:
    values = TOKEN._asdict() | {"renewers": [RENEWER]}
    return DelegationTokenCreated(token_id=token_id, **values)


def renewal(
    principal: str = OWNER, *, now_ms: int = 150, expires_ms: int = 250, token_id: str = ID
) -> DelegationTokenRenewed:
    return DelegationTokenRenewed(
        token_id=token_id, principal=principal, now_ms=now_ms, expires_ms=expires_ms
    )


def revocation(
    principal: str = OWNER, *, now_ms: int = 150, expires_ms: int = -1, token_id: str = ID
) -> DelegationTokenRevoked:
    return DelegationTokenRevoked(
        token_id=token_id, principal=principal, now_ms=now_ms, expires_ms=expires_ms
    )


def random_token_event(random: Random) -> Message:
    token_id, now_ms = random.choice("ab"), random.randrange(100, 350)
    principal = random.choice((OWNER, RENEWER, STRANGER))
    choice = random.randrange(4)
    if choice == 0:
        return token_event(token_id)
    if choice == 1:
        return renewal(principal, now_ms=now_ms, expires_ms=now_ms + 100, token_id=token_id)
    if choice == 2:
        expires_ms = random.choice((-1, now_ms + 10))
        return revocation(principal, now_ms=now_ms, expires_ms=expires_ms, token_id=token_id)
    return DelegationTokenExpired(token_id=token_id, expires_ms=random.choice((200, 300)))


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    assert cluster.decide(token_event(ID)) == Outcome(ErrorCode.NONE)
    return cluster


def test_created_token_exists_once(cluster: Cluster) -> None:
    version = cluster.state.security.version

    outcome = cluster.decide(token_event(ID).replace(owner=STRANGER))

    assert outcome.error is ErrorCode.DUPLICATE_RESOURCE
    assert cluster.state.security.tokens == {ID: TOKEN}
    assert cluster.state.security.version == version


@pytest.mark.parametrize(
    ("event", "outcome", "expires_ms"),
    [
        (renewal(), Outcome(ErrorCode.NONE, 250), 250),
        (renewal(RENEWER), Outcome(ErrorCode.NONE, 250), 250),
        (renewal(expires_ms=400), Outcome(ErrorCode.NONE, 300), 300),
        (renewal(expires_ms=160), Outcome(ErrorCode.NONE, 160), 160),
        (renewal(now_ms=200), Outcome(ErrorCode.NONE, 250), 250),
        (renewal(now_ms=201), EXPIRED, 200),
        (renewal(STRANGER, now_ms=201), EXPIRED, 200),
        (renewal(STRANGER), MISMATCH, 200),
        (renewal(REQUESTER), MISMATCH, 200),
        (renewal(token_id=OTHER), NOT_FOUND, 200),
        (revocation(expires_ms=170), Outcome(ErrorCode.NONE, 170), 170),
        (revocation(expires_ms=400), Outcome(ErrorCode.NONE, 300), 300),
        (revocation(expires_ms=250, now_ms=201), EXPIRED, 200),
        (revocation(STRANGER, expires_ms=250, now_ms=201), MISMATCH, 200),
        (revocation(STRANGER), MISMATCH, 200),
        (revocation(REQUESTER), MISMATCH, 200),
        (revocation(token_id=OTHER), NOT_FOUND, 200),
    ],
)
def test_change_has_the_outcome_of_kafka(
    cluster: Cluster, event: Message, outcome: Outcome, expires_ms: int
) -> None:
    version = cluster.state.security.version

    assert cluster.decide(event) == outcome

    assert cluster.state.security.tokens == {ID: TOKEN._replace(expires_ms=expires_ms)}
    assert (cluster.state.security.version != version) is (outcome.error is ErrorCode.NONE)


@pytest.mark.parametrize("principal", [OWNER, RENEWER])
def test_revoked_token_is_gone_even_if_it_had_expired(cluster: Cluster, principal: str) -> None:
    assert cluster.decide(revocation(principal, now_ms=900)) == Outcome(ErrorCode.NONE, 900)
    assert cluster.state.security.tokens == {}


def test_token_that_was_renewed_is_not_expired(cluster: Cluster) -> None:
    cluster.decide(renewal())

    assert cluster.decide(DelegationTokenExpired(token_id=ID, expires_ms=200)) == NOT_FOUND
    assert ID in cluster.state.security.tokens
    outcome = cluster.decide(DelegationTokenExpired(token_id=ID, expires_ms=250))
    assert outcome.error is ErrorCode.NONE
    assert cluster.state.security.tokens == {}


def test_image_keeps_tokens(cluster: Cluster) -> None:
    copy = read_image(write_image(cluster.state))

    assert copy.security.tokens == {ID: TOKEN}
    assert write_image(copy) == write_image(cluster.state)


def test_image_without_tokens_has_no_trace_of_them(cluster: Cluster) -> None:
    assert security_image(cluster.state.security)
    cluster.decide(revocation())
    assert security_image(cluster.state.security) == []
