"""Access rules, users, quotas and tokens of a Kafka cluster, as Rookery's state and events.

Kafka's numbers and keys are the same as Rookery's. The passwords of delegation tokens depend on a
key that is not in the metadata: tokens work on brokers that have Kafka's key as a setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from rookery.cluster.entry import divide_rules
from rookery.cluster.events.securityevents import (
    AclRow,
    QuotaChange,
    QuotaEntityPart,
    QuotasChanged,
    ScramChange,
    ScramCredentialsChanged,
)
from rookery.cluster.events.tokenevents import DelegationTokenCreated
from rookery.cluster.state.security import Security, StoredScram
from rookery.cluster.state.tokens import StoredToken
from rookery.formats.kraft.image import MetadataImage
from rookery.model.acl import StoredAcl
from rookery.wire.kraft.cluster import ClientQuotaRecord, EntityData
from rookery.wire.kraft.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from rookery.wire.message import Message


def security_of(image: MetadataImage) -> Security:
    """Return the access control of a cluster's metadata."""
    security = Security()
    security.acls = dict.fromkeys(map(acl_of, image.acls.values()))
    for record in image.scram.values():
        security.scram.setdefault(record.name, {})[record.mechanism] = _scram_of(record)
    security.quotas = {entity: dict(limits) for entity, limits in image.quotas.items()}
    security.tokens = {token_id: token_of(record) for token_id, record in image.tokens.items()}
    return security


def acl_of(record: AccessControlEntryRecord) -> StoredAcl:
    """Return the rule of a record."""
    return StoredAcl(
        record.resource_type,
        record.pattern_type,
        record.resource_name,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def token_of(record: DelegationTokenRecord) -> StoredToken:
    """Return the token of a record."""
    return StoredToken(
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.expiration_timestamp,
        record.max_timestamp,
    )


def records_of(security: Security) -> Iterator[Message]:
    """Yield the records of access control; the cluster's secret has none in Kafka."""
    for rule in security.acls:
        yield acl_record(rule, acl_id(rule))
    for user, credentials in security.scram.items():
        for mechanism, stored in sorted(credentials.items()):
            yield UserScramCredentialRecord(name=user, mechanism=mechanism, **stored._asdict())
    for entity, limits in security.quotas.items():
        for key, value in sorted(limits.items()):
            yield ClientQuotaRecord(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=value,
                remove=False,
            )
    for token_id, token in security.tokens.items():
        yield token_record(token_id, token)


def token_record(token_id: str, token: StoredToken) -> DelegationTokenRecord:
    """Return the record of a token."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expires_ms,
        token_id=token_id,
    )


def acl_record(rule: StoredAcl, record_id: bytes) -> AccessControlEntryRecord:
    """Return the record of a rule."""
    return AccessControlEntryRecord(
        id_=record_id,
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def acl_id(rule: StoredAcl) -> bytes:
    """Return an id for a rule's record; the same for the same rule."""
    return sha256(repr(tuple(rule)).encode()).digest()[:16]


def missing_events(image: MetadataImage, known: Security) -> Iterator[Message]:
    """Yield the events that add what a cluster does not have yet.

    Credentials, limits and tokens that the cluster has stay as they are: an import that is repeated
    must not undo changes that were made in between.
    """
    theirs = security_of(image)
    yield from divide_rules(
        [AclRow(**rule._asdict()) for rule in theirs.acls if rule not in known.acls]
    )
    for user, credentials in theirs.scram.items():
        changes = [
            ScramChange(mechanism=mechanism, **stored._asdict())
            for mechanism, stored in sorted(credentials.items())
            if mechanism not in known.scram.get(user, {})
        ]
        if changes:
            yield ScramCredentialsChanged(user=user, changes=changes)
    for entity, limits in theirs.quotas.items():
        new = {key: limits[key] for key in limits.keys() - known.quotas.get(entity, {}).keys()}
        if new:
            yield QuotasChanged(
                entity=[QuotaEntityPart(entity_type=kind, name=name) for kind, name in entity],
                changes=[
                    QuotaChange(key=key, value=value, is_removed=False)
                    for key, value in sorted(new.items())
                ],
            )
    for token_id, token in theirs.tokens.items():
        if token_id not in known.tokens:
            values = token._asdict() | {"renewers": list(token.renewers)}
            yield DelegationTokenCreated(token_id=token_id, **values)


def _scram_of(record: UserScramCredentialRecord) -> StoredScram:
    return StoredScram(
        record.iterations,
        bytes(record.salt),
        bytes(record.stored_key),
        bytes(record.server_key),
    )
