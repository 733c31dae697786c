"""The effects of events of delegation tokens.

Whether a client may change a token is decided here, because the token may have been renewed or
removed since the client's broker looked at it. The order of the checks is Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.cluster.entry import Entry
from rookery.cluster.events import tokenevents
from rookery.cluster.state.outcome import OK, EntryOutcome, Outcome
from rookery.cluster.state.rules.securityrules import SecurityContext
from rookery.cluster.state.security import Security
from rookery.cluster.state.tokens import StoredToken
from rookery.errors import ErrorCode
from rookery.wire.message import Message


def _created(
    known: SecurityContext,
    _entry: Entry,
    event: tokenevents.DelegationTokenCreated,
    _done: EntryOutcome,
) -> Outcome:
    security = known.security
    if event.token_id in security.tokens:
        return Outcome(ErrorCode.DUPLICATE_RESOURCE)
    security.tokens[event.token_id] = StoredToken(
        event.owner,
        event.requester,
        tuple(event.renewers),
        event.issued_ms,
        event.expires_ms,
        event.max_ms,
    )
    security.tokens_version += 1
    return OK


def _renewed(
    known: SecurityContext,
    _entry: Entry,
    event: tokenevents.DelegationTokenRenewed,
    _done: EntryOutcome,
) -> Outcome:
    security = known.security
    token = security.tokens.get(event.token_id)
    if token is None:
        return Outcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if token.is_expired(event.now_ms):
        return Outcome(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.may_change(event.principal):
        return Outcome(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return _set_expiry(security, event.token_id, event.expires_ms)


def _revoked(
    known: SecurityContext,
    _entry: Entry,
    event: tokenevents.DelegationTokenRevoked,
    _done: EntryOutcome,
) -> Outcome:
    security = known.security
    token = security.tokens.get(event.token_id)
    if token is None:
        return Outcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not token.may_change(event.principal):
        return Outcome(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if event.expires_ms < 0:
        del security.tokens[event.token_id]
        security.tokens_version += 1
        return Outcome(ErrorCode.NONE, event.now_ms)
    if token.is_expired(event.now_ms):
        return Outcome(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _set_expiry(security, event.token_id, event.expires_ms)


def _expired(
    known: SecurityContext,
    _entry: Entry,
    event: tokenevents.DelegationTokenExpired,
    _done: EntryOutcome,
) -> Outcome:
    security = known.security
    token = security.tokens.get(event.token_id)
    if token is None or token.expires_ms != event.expires_ms:
        return Outcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    del security.tokens[event.token_id]
    security.tokens_version += 1
    return OK


def _set_expiry(security: Security, token_id: str, expires_ms: int) -> Outcome:
    """Set the time at which a token expires; the outcome has the time that results."""
    token = security.tokens[token_id]
    expires_ms = min(expires_ms, token.max_ms)
    security.tokens[token_id] = token._replace(expires_ms=expires_ms)
    security.tokens_version += 1
    return Outcome(ErrorCode.NONE, expires_ms)


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    tokenevents.DelegationTokenCreated: _created,
    tokenevents.DelegationTokenRenewed: _renewed,
    tokenevents.DelegationTokenRevoked: _revoked,
    tokenevents.DelegationTokenExpired: _expired,
}
