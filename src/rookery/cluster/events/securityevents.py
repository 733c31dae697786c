"""Events of access control: rules, credentials, quotas and the cluster's secret.

They exist from feature level 3 on. Their contents are secret or sensitive, so dumps of the cluster
log name only their types.
"""

from __future__ import annotations

from rookery.wire.message import Message, SecretBytes, User, f64, i8, i32


class AclRow(Message):
    """One access rule, with Kafka's numbers."""

    resource_type: i8
    pattern_type: i8
    resource_name: str
    principal: str
    host: str
    operation: i8
    permission: i8


class AclFilterRow(Message):
    """A filter over access rules; null and 1 match everything."""

    resource_type: i8
    pattern_type: i8
    resource_name: str | None
    principal: str | None
    host: str | None
    operation: i8
    permission: i8


class AclsCreated(Message, key=120, versions=range(1), flexible=0):
    """Rules are added; a rule that exists stays as it is."""

    rules: list[AclRow]


class AclsDeleted(Message, key=121, versions=range(1), flexible=0):
    """The rules that the filters find are removed; the outcome lists them for each filter."""

    filters: list[AclFilterRow]


class ScramChange(Message):
    """One user's credential for one mechanism; without a salt, it is removed."""

    mechanism: i8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: i32
    salt: SecretBytes
    stored_key: SecretBytes
    server_key: SecretBytes


class ScramCredentialsChanged(Message, key=122, versions=range(1), flexible=0):
    """One user's credentials change, all together or not at all."""

    user: User
    changes: list[ScramChange]


class QuotaEntityPart(Message):
    """A part of the entity that a quota limits; a null name is the default of its type."""

    entity_type: str
    name: str | None


class QuotaChange(Message):
    """One limit of an entity."""

    key: str
    value: f64
    is_removed: bool


class QuotasChanged(Message, key=123, versions=range(1), flexible=0):
    """The limits of one entity change."""

    entity: list[QuotaEntityPart]
    changes: list[QuotaChange]


class ClusterSecretCreated(Message, key=124, versions=range(1), flexible=0):
    """The secret from which salts of unknown users are derived; only the first one counts."""

    secret: SecretBytes
