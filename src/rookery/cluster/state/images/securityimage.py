"""Access rules, credentials, quotas and delegation tokens in a state's image."""

from __future__ import annotations

from rookery.cluster.events.securityevents import AclRow, QuotaEntityPart
from rookery.cluster.state.rules.securityrules import binding_of
from rookery.cluster.state.security import Security, StoredScram
from rookery.cluster.state.tokens import StoredToken
from rookery.wire.message import (
    Message,
    Principal,
    SecretBytes,
    TokenId,
    User,
    f64,
    field,
    i8,
    i32,
    i64,
)


class ScramImage(Message):
    """One user's credential for one mechanism."""

    user: User
    mechanism: i8
    iterations: i32
    salt: SecretBytes
    stored_key: SecretBytes
    server_key: SecretBytes


class LimitImage(Message):
    """One limit of an entity."""

    key: str
    value: f64


class QuotaImage(Message):
    """An entity and its limits."""

    entity: list[QuotaEntityPart]
    limits: list[LimitImage]


class TokenImage(Message):
    """A delegation token."""

    token_id: TokenId
    owner: Principal
    requester: Principal
    renewers: list[Principal]
    issued_ms: i64
    expires_ms: i64
    max_ms: i64


class SecurityImage(Message):
    """Everything that access control stores."""

    acls: list[AclRow]
    scram: list[ScramImage]
    quotas: list[QuotaImage]
    secret: SecretBytes
    tokens: list[TokenImage] = field(tag=0, factory=list)


def security_image(security: Security) -> list[SecurityImage]:
    """Write access control; an empty list if the cluster has none, as before feature level 3."""
    stored = (security.acls, security.scram, security.quotas, security.secret, security.tokens)
    if not any(stored):
        return []
    return [
        SecurityImage(
            acls=[AclRow(**rule._asdict()) for rule in security.acls],
            scram=[
                ScramImage(user=user, mechanism=mechanism, **stored._asdict())
                for user, credentials in security.scram.items()
                for mechanism, stored in sorted(credentials.items())
            ],
            quotas=[
                QuotaImage(
                    entity=[QuotaEntityPart(entity_type=kind, name=name) for kind, name in entity],
                    limits=[LimitImage(key=key, value=limits[key]) for key in sorted(limits)],
                )
                for entity, limits in security.quotas.items()
            ],
            secret=security.secret,
            tokens=[_token_image(token_id, token) for token_id, token in security.tokens.items()],
        )
    ]


def read_security(images: list[SecurityImage]) -> Security:
    """Read access control."""
    security = Security()
    for image in images:
        security.acls = dict.fromkeys(map(binding_of, image.acls))
        for credential in image.scram:
            security.scram.setdefault(credential.user, {})[credential.mechanism] = StoredScram(
                credential.iterations,
                bytes(credential.salt),
                bytes(credential.stored_key),
                bytes(credential.server_key),
            )
        for quota in image.quotas:
            entity = tuple((part.entity_type, part.name) for part in quota.entity)
            security.quotas[entity] = {limit.key: limit.value for limit in quota.limits}
        security.secret = bytes(image.secret)
        for token in image.tokens:
            security.tokens[token.token_id] = _token(token)
    return security


def _token_image(token_id: str, token: StoredToken) -> TokenImage:
    values = token._asdict() | {"renewers": list(token.renewers)}
    return TokenImage(token_id=token_id, **values)


def _token(image: TokenImage) -> StoredToken:
    return StoredToken(
        image.owner,
        image.requester,
        tuple(image.renewers),
        image.issued_ms,
        image.expires_ms,
        image.max_ms,
    )
