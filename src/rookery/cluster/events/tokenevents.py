"""Events of delegation tokens (KIP-48).

They exist from feature level 3 on. None of them has a token's HMAC, which is its password: brokers
derive it from the token's id and a key.
"""

from __future__ import annotations

from rookery.wire.message import Message, Principal, TokenId, i64


class DelegationTokenCreated(Message, key=125, versions=range(1), flexible=0):
    """A token is created. Times are milliseconds since 1970, on the proposer's clock."""

    token_id: TokenId
    owner: Principal
    requester: Principal
    renewers: list[Principal]
    issued_ms: i64
    expires_ms: i64
    max_ms: i64  # no renewal goes beyond this


class DelegationTokenRenewed(Message, key=126, versions=range(1), flexible=0):
    """A client extends the life of a token."""

    token_id: TokenId
    principal: Principal  # the client that asks for it
    now_ms: i64
    expires_ms: i64


class DelegationTokenRevoked(Message, key=127, versions=range(1), flexible=0):
    """A client ends a token at once, or sets the time of its end."""

    token_id: TokenId
    principal: Principal
    now_ms: i64
    expires_ms: i64  # -1: it is removed at once


class DelegationTokenExpired(Message, key=128, versions=range(1), flexible=0):
    """A token is removed because its time is over, unless it was renewed since it was looked at."""

    token_id: TokenId
    expires_ms: i64  # as the proposer has seen it
