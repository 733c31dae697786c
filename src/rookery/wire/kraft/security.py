"""Access rules, passwords and tokens in the metadata log."""

from __future__ import annotations

from rookery.wire.message import Message, SecretBytes, Uuid, i8, i32, i64


class AccessControlEntryRecord(Message, key=18, versions=range(1), flexible=0):
    """A rule was added: it allows or denies a principal on a host an operation on a resource.

    The numbers are those of CreateAcls.
    """

    id_: Uuid
    resource_type: i8  # 2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user
    resource_name: str
    pattern_type: i8  # 3 literal, 4 prefixed
    principal: str
    host: str  # the client's address or "*", not a broker's
    operation: i8
    permission_type: i8  # 2 deny, 3 allow


class RemoveAccessControlEntryRecord(Message, key=19, versions=range(1), flexible=0):
    """A rule was removed."""

    id_: Uuid


class UserScramCredentialRecord(Message, key=11, versions=range(1), flexible=0):
    """A user's SCRAM password was set; the password itself is not kept."""

    name: str
    mechanism: i8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    salt: SecretBytes
    stored_key: SecretBytes
    server_key: SecretBytes
    iterations: i32


class RemoveUserScramCredentialRecord(Message, key=22, versions=range(1), flexible=0):
    """A user's SCRAM password was removed."""

    name: str
    mechanism: i8


class DelegationTokenRecord(Message, key=10, versions=range(1), flexible=0):
    """A delegation token was made or renewed; its secret follows from its id."""

    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp: i64
    max_timestamp: i64
    expiration_timestamp: i64
    token_id: str


class RemoveDelegationTokenRecord(Message, key=26, versions=range(1), flexible=0):
    """A delegation token was removed or has expired."""

    token_id: str
