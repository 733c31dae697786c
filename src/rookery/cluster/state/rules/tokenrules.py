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

TokenChange = tokenevents.DelegationTokenRenewed | tokenevents.DelegationTokenRevoked
TokenCheck = Callable[[StoredToken, TokenChange], ErrorCode]


def _create_token(
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


def _renew_token(
    known: SecurityContext,
    _entry: Entry,
    event: tokenevents.DelegationTokenRenewed,
    _done: EntryOutcome,
) -> Outcome:
    return _set_expiry(known.security, event, _check_time, _check_owner)


def _revoke_token(
    known: SecurityContext,
    _entry: Entry,
    event: tokenevents.DelegationTokenRevoked,
    _done: EntryOutcome,
) -> Outcome:
    security = known.security
    if event.expires_ms >= 0:
        return _set_expiry(security, event, _check_owner, _check_time)
    refusal = _refusal(security, event, _check_owner)
    return refusal or _remove(security, event.token_id, Outcome(ErrorCode.NONE, event.now_ms))


def _expire_token(
    known: SecurityContext,
    _entry: Entry,
    event: tokenevents.DelegationTokenExpired,
    _done: EntryOutcome,
) -> Outcome:
    token = known.security.tokens.get(event.token_id)
    if token is None or token.expires_ms != event.expires_ms:
        return Outcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return _remove(known.security, event.token_id, OK)


def _check_time(token: StoredToken, event: TokenChange) -> ErrorCode:
    is_expired = token.is_expired(event.now_ms)
    return ErrorCode.DELEGATION_TOKEN_EXPIRED if is_expired else ErrorCode.NONE


def _check_owner(token: StoredToken, event: TokenChange) -> ErrorCode:
    is_allowed = token.may_change(event.principal)
    return ErrorCode.NONE if is_allowed else ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def _refusal(security: Security, event: TokenChange, *checks: TokenCheck) -> Outcome | None:
    """Return the outcome of the first check that fails; None if all succeed."""
    token = security.tokens.get(event.token_id)
    if token is None:
        return Outcome(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    failures = (check(token, event) for check in checks)
    code = next((code for code in failures if code is not ErrorCode.NONE), None)
    return None if code is None else Outcome(code)


def _set_expiry(security: Security, event: TokenChange, *checks: TokenCheck) -> Outcome:
    """Set the time at which a token expires; the outcome has the time that results."""
    refusal = _refusal(security, event, *checks)
    if refusal is not None:
        return refusal
    token = security.tokens[event.token_id]
    expires_ms = min(event.expires_ms, token.max_ms)
    security.tokens[event.token_id] = token._replace(expires_ms=expires_ms)
    security.tokens_version += 1
    return Outcome(ErrorCode.NONE, expires_ms)


def _remove(security: Security, token_id: str, outcome: Outcome) -> Outcome:
    del security.tokens[token_id]
    security.tokens_version += 1
    return outcome


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    tokenevents.DelegationTokenCreated: _create_token,
    tokenevents.DelegationTokenRenewed: _renew_token,
    tokenevents.DelegationTokenRevoked: _revoke_token,
    tokenevents.DelegationTokenExpired: _expire_token,
}
