"""The access rules, users and quotas of a cluster, as clients list them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import pbkdf2_hmac
from typing import NamedTuple

from confluent_kafka import KafkaError, Producer

from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from rookery.wire.messages.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
)
from tests.broker.test_client_quotas import Found, Ops, Parts, alter, describe

SECONDS = 30
ANY, LITERAL, PREFIXED = 1, 3, 4
DENY, ALLOW = 2, 3
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = range(2, 8)
ALL, READ, WRITE, DESCRIBE, CREATE_TOKENS = 2, 3, 4, 8, 13
SHA_256, SHA_512 = 1, 2
HASHES = {SHA_256: "sha256", SHA_512: "sha512"}

TOPICS = ("open", "closed", "test-one", "test-secret", "here", "elsewhere")


class AccessRule(NamedTuple):
    """One rule, with Kafka's numbers."""

    type: int
    name: str
    operation: int
    principal: str = "User:alice"
    pattern: int = LITERAL
    permission: int = ALLOW
    host: str = "*"


class AccessSight(NamedTuple):
    """Everything that describes access; equal for clusters with the same access control."""

    rules: frozenset[AccessRule]
    users: dict[str, dict[int, int]]
    """Iterations by user and mechanism."""
    quotas: Found


RULES = (
    AccessRule(TOPIC, "open", ALL),
    AccessRule(TOPIC, "test-", WRITE, pattern=PREFIXED),
    AccessRule(TOPIC, "test-secret", WRITE, permission=DENY),
    AccessRule(TOPIC, "here", WRITE, host="127.0.0.1"),
    AccessRule(TOPIC, "elsewhere", WRITE, host="10.0.0.9"),
    AccessRule(TOPIC, "*", DESCRIBE, "User:*"),
    AccessRule(GROUP, "readers", READ, "User:CN=client,O=The Company\\, Ltd"),
    AccessRule(CLUSTER, "kafka-cluster", DESCRIBE, "User:zoë"),
    AccessRule(TRANSACTIONAL_ID, "tx-", ALL, pattern=PREFIXED),
    AccessRule(TOKEN, "a-token", DESCRIBE),
    AccessRule(USER, "User:bob", CREATE_TOKENS),
)
PASSWORDS = {"alice": "alice-secret", "admin": "admin-secret"}
BOB = "bob-secret"
QUOTAS: tuple[tuple[Parts, Ops], ...] = (
    ([("user", "alice")], [("producer_byte_rate", 1e9), ("consumer_byte_rate", 2e9)]),
    ([("user", None)], [("request_percentage", 250.5)]),
    ([("client-id", "app")], [("producer_byte_rate", 3e9)]),
    ([("client-id", None)], [("consumer_byte_rate", 4e9)]),
    ([("user", "alice"), ("client-id", "app")], [("producer_byte_rate", 5e9)]),
    ([("user", "zoë"), ("client-id", None)], [("producer_byte_rate", 6e9)]),
    ([("user", None), ("client-id", "app")], [("controller_mutation_rate", 700.0)]),
    ([("client-id", None), ("user", None)], [("producer_byte_rate", 8e9)]),
    ([("ip", "10.0.0.9")], [("connection_creation_rate", 900.0)]),
    ([("ip", None)], [("connection_creation_rate", 1000.0)]),
)
# What alice may write, by the rules above.
WRITES = {
    "open": "",
    "closed": "TOPIC_AUTHORIZATION_FAILED",
    "test-one": "",
    "test-secret": "TOPIC_AUTHORIZATION_FAILED",
    "here": "",
    "elsewhere": "TOPIC_AUTHORIZATION_FAILED",
}


def look_at_access(bootstrap: str) -> AccessSight:
    """Describe everything, as a super user."""
    wanted = DescribeAclsRequest(
        resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
        principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    acls = ask(bootstrap, DESCRIBE_ACLS, 3, wanted)
    assert acls.error_code is ErrorCode.NONE
    users = ask(
        bootstrap, DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest()
    )
    assert users.error_code is ErrorCode.NONE
    error, _, quotas = describe(bootstrap)
    assert error is ErrorCode.NONE
    assert quotas is not None
    return AccessSight(
        frozenset(
            AccessRule(
                resource.resource_type, resource.resource_name, acl.operation, acl.principal,
                resource.pattern_type, acl.permission_type, acl.host,
            )
            for resource in acls.resources
            for acl in resource.acls
        ),
        {
            result.user: {info.mechanism: info.iterations for info in result.credential_infos}
            for result in users.results
        },
        quotas,
    )  # fmt: skip


def fill_access(bootstrap: str) -> None:
    """Create topics, rules, users and quotas, and remove some again."""
    topics = [
        CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in TOPICS
    ]
    made = ask(bootstrap, CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    assert {topic.error_code for topic in made.topics} == {ErrorCode.NONE}
    passing = AccessRule(TOPIC, "passing", READ)
    create_rules(bootstrap, *RULES, passing)
    delete_rules(bootstrap, "passing")
    for user, password in PASSWORDS.items():
        set_password(bootstrap, user, password)
    set_password(bootstrap, "bob", BOB, SHA_512, 8192)
    set_password(bootstrap, "zoë", "ça va", SHA_256, 16384)
    set_password(bootstrap, "gone", "gone-secret", SHA_256)
    remove_user(bootstrap, "gone", SHA_256)
    assert {code for code, _ in alter(bootstrap, *QUOTAS)} == {ErrorCode.NONE}
    passing_quota: Parts = [("user", "gone")]
    alter(bootstrap, (passing_quota, [("producer_byte_rate", 1.0)]))
    alter(bootstrap, (passing_quota, [("producer_byte_rate", None)]))
    # A real Kafka answers before its broker has the newest metadata.
    wait_until(lambda: look_at_access(bootstrap), accepts=lambda seen: seen == EXPECTED)


def create_rules(bootstrap: str, *rules: AccessRule) -> None:
    """Add rules."""
    creations = [
        AclCreation(
            resource_type=rule.type, resource_name=rule.name,
            resource_pattern_type=rule.pattern, principal=rule.principal, host=rule.host,
            operation=rule.operation, permission_type=rule.permission,
        )
        for rule in rules
    ]  # fmt: skip
    made = ask(bootstrap, CREATE_ACLS, 3, CreateAclsRequest(creations=creations))
    assert {result.error_code for result in made.results} == {ErrorCode.NONE}


def delete_rules(bootstrap: str, topic: str) -> None:
    """Remove the rules of a topic."""
    wanted = DeleteAclsFilter(
        resource_type_filter=TOPIC, resource_name_filter=topic, pattern_type_filter=ANY,
        principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    [deleted] = ask(bootstrap, DELETE_ACLS, 3, DeleteAclsRequest(filters=[wanted])).filter_results
    assert deleted.error_code is ErrorCode.NONE
    assert deleted.matching_acls


def set_password(
    bootstrap: str, user: str, password: str, mechanism: int | None = None, iterations: int = 4096
) -> None:
    """Set a user's password, for one mechanism or both."""
    for number in [mechanism] if mechanism else HASHES:
        salt = f"salt of {user}".encode()
        hashed = pbkdf2_hmac(HASHES[number], password.encode(), salt, iterations)
        change = ScramCredentialUpsertion(
            name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=hashed
        )
        _change_users(
            bootstrap, AlterUserScramCredentialsRequest(deletions=[], upsertions=[change])
        )


def remove_user(bootstrap: str, user: str, mechanism: int) -> None:
    """Remove one of a user's credentials."""
    deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
    _change_users(bootstrap, AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))


def _change_users(bootstrap: str, request: AlterUserScramCredentialsRequest) -> None:
    [result] = ask(bootstrap, ALTER_USER_SCRAM_CREDENTIALS, 0, request).results
    assert result.error_code is ErrorCode.NONE, result.error_message


def write_as(config: Mapping[str, object], topic: str) -> str:
    """Write one record with librdkafka; return the name of the error, empty if there is none."""
    broken: list[KafkaError] = []
    results: list[KafkaError | None] = []
    producer = Producer(
        {"log_level": 0, "error_cb": broken.append, "message.timeout.ms": 30_000, **config}
    )
    producer.produce(topic, b"x", on_delivery=lambda error, _: results.append(error))
    wait_until(lambda: producer.poll(0.05) is not None and (results or _refusals(broken)))
    errors = [result for result in results if result is not None] if results else _refusals(broken)
    producer.purge()
    producer.flush(0)
    return errors[0].name() if errors else ""


def _refusals(errors: list[KafkaError]) -> list[KafkaError]:
    return [error for error in errors if error.name() in {"_AUTHENTICATION", "_SSL"}]


def login(address: str, user: str, password: str, mechanism: str) -> dict[str, object]:
    """Return librdkafka's settings of a login without TLS."""
    return {
        "bootstrap.servers": address,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def check_logins(address: str) -> None:
    """Log in with the old passwords, and be denied by the old rules."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        alice = login(address, "alice", PASSWORDS["alice"], mechanism)
        assert {topic: write_as(alice, topic) for topic in WRITES} == WRITES
    bob = login(address, "bob", BOB, "SCRAM-SHA-512")
    assert write_as(bob, "open") == "TOPIC_AUTHORIZATION_FAILED"
    admin = login(address, "admin", PASSWORDS["admin"], "SCRAM-SHA-256")
    assert write_as(admin, "closed") == ""
    wrong = login(address, "alice", "wrong", "SCRAM-SHA-256")
    assert write_as(wrong, "open") == "_AUTHENTICATION"
    gone = login(address, "gone", "gone-secret", "SCRAM-SHA-256")
    assert write_as(gone, "open") == "_AUTHENTICATION"


EXPECTED = AccessSight(
    frozenset(RULES),
    {user: {SHA_256: 4096, SHA_512: 4096} for user in PASSWORDS}
    | {"bob": {SHA_512: 8192}, "zoë": {SHA_256: 16384}},
    {
        (frozenset(parts), frozenset((key, value) for key, value in ops if value is not None))
        for parts, ops in QUOTAS
    },
)
"""What a cluster has after `fill_access`."""
