"""AlterUserScramCredentials: set or remove the passwords of users, each user atomically."""

from __future__ import annotations

from collections import Counter
from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide_for_all_brokers, require_security
from rookery.cluster.events.securityevents import ScramChange, ScramCredentialsChanged
from rookery.errors import ApiError, ErrorCode
from rookery.security.credential import (
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    client_key,
    digest,
    server_key,
)
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_MAX_ITERATIONS: Final = 16_384
_NOT_FOUND: Final = "Attempt to delete a user credential that does not exist"

_Change = ScramCredentialDeletion | ScramCredentialUpsertion


@handles(
    ALTER_USER_SCRAM_CREDENTIALS,
    mutates=True,
)
async def alter_user_scram_credentials(
    call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of every user whose changes are all valid."""
    require_security(call)
    users: dict[str, list[_Change]] = {}
    changes: list[_Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        users.setdefault(change.name, []).append(change)
    results: dict[str, AlterUserScramCredentialsResult] = {}
    events: list[ScramCredentialsChanged] = []
    for user, changed in users.items():
        try:
            _check(changed)
            events.append(ScramCredentialsChanged(user=user, changes=list(map(_row, changed))))
        except ApiError as error:
            results[user] = _result(user, error.code, error.reason)
    outcomes = await decide_for_all_brokers(call, events)
    for event, outcome in zip(events, outcomes, strict=True):
        text = _NOT_FOUND if outcome.error is ErrorCode.RESOURCE_NOT_FOUND else None
        results[event.user] = _result(event.user, outcome.error, text)
    return AlterUserScramCredentialsResponse(results=[results[user] for user in users])


def _check(changes: list[_Change]) -> None:
    """Check the changes of one user.

    Raises:
        ApiError: Kafka's code and text for what is wrong.
    """
    if not changes[0].name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if max(Counter(change.mechanism for change in changes).values()) > 1:
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    for change in changes:
        if change.mechanism not in SCRAM_MECHANISMS.values():
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(change, ScramCredentialUpsertion):
            _check_credential(change)


def _check_credential(change: ScramCredentialUpsertion) -> None:
    if change.iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > _MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salt or not change.salted_password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and password must not be empty")


def _row(change: _Change) -> ScramChange:
    if isinstance(change, ScramCredentialDeletion):
        return ScramChange(
            mechanism=change.mechanism, iterations=0, salt=b"", stored_key=b"", server_key=b""
        )
    name, salted = ScramMechanism(change.mechanism).text, bytes(change.salted_password)
    return ScramChange(
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=bytes(change.salt),
        stored_key=digest(name, client_key(name, salted)),
        server_key=server_key(name, salted),
    )


def _result(user: str, code: ErrorCode, text: str | None) -> AlterUserScramCredentialsResult:
    message = None if code is ErrorCode.NONE else text or code.sentence
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
