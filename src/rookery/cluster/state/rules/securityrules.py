"""The effects of security events. Changes of one event take effect together or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from rookery.cluster.entry import Entry
from rookery.cluster.events import securityevents
from rookery.cluster.state.outcome import OK, EntryOutcome, Outcome
from rookery.cluster.state.security import Security, StoredScram
from rookery.errors import ErrorCode
from rookery.model.acl import PatternType, StoredAcl, StoredAclFilter
from rookery.wire.message import Message

SECURITY: Final = 3
"""The first feature level at which programs propose these events."""


class SecurityContext(Protocol):
    """The part of the state that access control depends on."""

    security: Security


def _acls_created(
    known: SecurityContext, _entry: Entry, event: securityevents.AclsCreated, _done: EntryOutcome
) -> Outcome:
    security = known.security
    for row in event.rules:
        security.acls[binding_of(row)] = None
    security.acls_version += 1
    return OK


def _acls_deleted(
    known: SecurityContext, _entry: Entry, event: securityevents.AclsDeleted, _done: EntryOutcome
) -> Outcome:
    security = known.security
    removed = list(_find_each(security.acls, map(_filter_of, event.filters)))
    for rules in removed:
        for rule in rules:
            security.acls.pop(rule, None)
    security.acls_version += 1
    return Outcome(ErrorCode.NONE, removed)


def _find_each(
    rules: Mapping[StoredAcl, None], choices: Iterable[StoredAclFilter]
) -> Iterator[list[StoredAcl]]:
    """Return the rules that each filter finds; most filters name a resource, or one rule."""
    by_name: defaultdict[str, list[StoredAcl]] = defaultdict(list)
    for rule in rules:
        by_name[rule.resource_name].append(rule)
    for choice in choices:
        if choice.is_exact:
            rule = StoredAcl._make(choice)
            yield [rule] if rule in rules else []
        elif choice.resource_name is None or choice.pattern_type == PatternType.MATCH:
            yield list(filter(choice.matches, rules))
        else:
            yield list(filter(choice.matches, by_name.get(choice.resource_name, ())))


def _scram_changed(
    known: SecurityContext,
    _entry: Entry,
    event: securityevents.ScramCredentialsChanged,
    _done: EntryOutcome,
) -> Outcome:
    credentials = dict(known.security.scram.get(event.user, {}))
    for change in event.changes:
        if change.salt:
            credentials[change.mechanism] = StoredScram(
                change.iterations,
                bytes(change.salt),
                bytes(change.stored_key),
                bytes(change.server_key),
            )
        elif credentials.pop(change.mechanism, None) is None:
            return Outcome(ErrorCode.RESOURCE_NOT_FOUND)
    if credentials:
        known.security.scram[event.user] = credentials
    else:
        known.security.scram.pop(event.user, None)
    known.security.accounts_version += 1
    return OK


def _quotas_changed(
    known: SecurityContext, _entry: Entry, event: securityevents.QuotasChanged, _done: EntryOutcome
) -> Outcome:
    security = known.security
    parts = sorted(event.entity, key=lambda part: part.entity_type)
    entity = tuple((part.entity_type, part.name) for part in parts)
    limits = dict(security.quotas.get(entity, {}))
    for change in event.changes:
        if change.is_removed:
            limits.pop(change.key, None)
        else:
            limits[change.key] = change.value
    if limits:
        security.quotas[entity] = limits
    else:
        security.quotas.pop(entity, None)
    security.quotas_version += 1
    return OK


def _secret_created(
    known: SecurityContext,
    _entry: Entry,
    event: securityevents.ClusterSecretCreated,
    _done: EntryOutcome,
) -> Outcome:
    if known.security.secret:
        return Outcome(ErrorCode.DUPLICATE_RESOURCE)
    known.security.secret = bytes(event.secret)
    known.security.accounts_version += 1
    return OK


def binding_of(row: securityevents.AclRow) -> StoredAcl:
    """Return the rule of a row."""
    return StoredAcl(
        row.resource_type,
        row.pattern_type,
        row.resource_name,
        row.principal,
        row.host,
        row.operation,
        row.permission,
    )


def _filter_of(row: securityevents.AclFilterRow) -> StoredAclFilter:
    return StoredAclFilter(
        row.resource_type,
        row.pattern_type,
        row.resource_name,
        row.principal,
        row.host,
        row.operation,
        row.permission,
    )


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    securityevents.AclsCreated: _acls_created,
    securityevents.AclsDeleted: _acls_deleted,
    securityevents.ScramCredentialsChanged: _scram_changed,
    securityevents.QuotasChanged: _quotas_changed,
    securityevents.ClusterSecretCreated: _secret_created,
}
