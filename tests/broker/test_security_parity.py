"""Changes of access rules and of SCRAM users, compared with Kafka's answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.errors import ErrorCode
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response
from rookery.wire.message import Api, Message
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from rookery.wire.messages.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.sweep.asking import Line, frame

Values = dict[str, Any]
Result = Any

CLOSED = "closed"
SHA_256, SHA_512 = 1, 2
_numbers = count(1)


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, kafka_secure: KafkaServer
) -> Iterator[tuple[str, str]]:
    """Our address and Kafka's; clients of both may change everything."""
    settings = BrokerSettings(
        durability="os", authorizer="acls", super_users="User:ANONYMOUS", partitions=1
    )
    with ServedBroker(tmp_path_factory.mktemp("broker"), settings) as ours:
        yield ours.bootstrap, kafka_secure.bootstrap


@pytest.fixture
def user() -> str:
    """A name that no other test has used."""
    return f"parity-{next(_numbers)}"


def ask(bootstrap: str, api: Api[Any, Any], version: int, request: Message) -> Any:
    """Return the answer, or that the connection was closed in place of one."""
    with Line(int(bootstrap.rpartition(":")[2])) as line:
        line.send(frame(api, version, 1, request))
        answer = line.read()
        return CLOSED if answer is None else read_response(api, version, answer)


# Rules.

RULE: Values = {
    "resource_type": 2, "resource_name": "birds", "resource_pattern_type": 3, "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
EVERYTHING: Values = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
SOME_RULES: list[Values] = [
    {},
    {"operation": 4, "host": "10.0.0.1"},
    {"resource_name": "*"},
    {"resource_name": "bir", "resource_pattern_type": 4},
    {"resource_type": 3, "resource_name": "watchers", "permission_type": 2},
    {"resource_type": 4, "resource_name": "kafka-cluster", "operation": 8},
    {"resource_type": 5, "resource_name": "birds"},
]
NAMES = ("", "a", "*", "kafka-cluster", "a" * 300, "../a", "a\nb", "д")
PRINCIPALS = ("", ":", "nobody", "User:", ":x", "User:*", "*:x", "Group:x", "User:x:y", "*")
HOSTS = ("", "10.0.0.1", "300.1.1.1", "localhost", "::1", "0:0:0:0:0:0:0:1", "10.0.0.0/8")


def creations() -> Iterator[Values]:
    for number in (-1, *range(9), 86):
        yield {"resource_type": number}
        yield {"resource_pattern_type": number}
        yield {"permission_type": number}
    for number in (-1, *range(18)):
        for kind, name in ((2, "birds"), (4, "kafka-cluster")):
            yield {"resource_type": kind, "resource_name": name, "operation": number}
    for name in NAMES:
        for kind in range(2, 8):
            yield {"resource_type": kind, "resource_name": name}
    yield from ({"principal": principal} for principal in PRINCIPALS)
    yield from ({"host": host} for host in HOSTS)
    yield {"resource_pattern_type": 4, "resource_name": "*"}
    yield {"resource_pattern_type": 4, "resource_type": 4, "resource_name": "kafka-cluster"}


def filters() -> Iterator[Values]:
    yield {}
    for number in (-1, *range(9)):
        yield {"resource_type_filter": number}
        yield {"pattern_type_filter": number}
        yield {"permission_type": number}
        yield {"pattern_type_filter": number, "resource_name_filter": "birds"}
        yield {"pattern_type_filter": number, "resource_name_filter": "*"}
    yield from ({"operation": number} for number in (-1, *range(17)))
    yield from ({"resource_name_filter": name} for name in NAMES)
    yield from ({"host_filter": host} for host in (*HOSTS, "*"))


MEANINGS = {
    "resource_type": range(2, 8), "resource_pattern_type": range(3, 5), "operation": range(2, 16),
    "permission_type": range(2, 4), "resource_type_filter": range(1, 8),
    "pattern_type_filter": range(1, 5),
}  # fmt: skip


def is_meaningless(values: Values, *, is_filter: bool = False) -> bool:
    """Return whether a number has no meaning, to which Kafka has several answers.

    docs/differences.md has them, and the reason for ours.
    """
    return any(
        number not in MEANINGS[name] and not (is_filter and number == 1)
        for name, number in values.items()
        if name in MEANINGS
    )


def create(bootstrap: str, *rules: Values, user: str) -> Result:
    made = [AclCreation(**{**RULE, "principal": f"User:{user}", **rule}) for rule in rules]
    answer = ask(bootstrap, CREATE_ACLS, 3, CreateAclsRequest(creations=made))
    return answer if answer == CLOSED else [result.error_code for result in answer.results]


def delete(bootstrap: str, *choices: Values, user: str) -> Result:
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(**{**EVERYTHING, "principal_filter": f"User:{user}", **choice})
            for choice in choices
        ]
    )
    answer = ask(bootstrap, DELETE_ACLS, 3, request)
    if answer == CLOSED:
        return answer
    return [
        (result.error_code, sorted(map(str, result.matching_acls)))
        for result in answer.filter_results
    ]


def describe(bootstrap: str, choice: Values, user: str | None) -> Result:
    principal = None if user is None else f"User:{user}"
    request = DescribeAclsRequest(**{**EVERYTHING, "principal_filter": principal, **choice})
    answer = ask(bootstrap, DESCRIBE_ACLS, 3, request)
    if answer == CLOSED:
        return answer
    resources = [
        (resource.resource_type, resource.pattern_type, resource.resource_name,
         sorted(map(str, resource.acls)))
        for resource in answer.resources
    ]  # fmt: skip
    return answer.error_code, sorted(resources)


def await_rules(bootstrap: str, user: str, number: int) -> None:
    """Return when a user has this number of rules; Kafka applies changes after its answers."""

    def rules() -> int:
        _, resources = describe(bootstrap, {}, user)
        return sum(len(resource[-1]) for resource in resources)

    wait_until(rules, accepts=lambda known: known == number)


@pytest.mark.parametrize("rule", [*creations()], ids=str)
def test_creation_of_a_rule_matches_kafka(pair: tuple[str, str], user: str, rule: Values) -> None:
    ours, theirs = (create(bootstrap, rule, user=user) for bootstrap in pair)
    for bootstrap in pair:
        delete(bootstrap, {"principal_filter": rule.get("principal", f"User:{user}")}, user=user)

    assert ours == ([ErrorCode.INVALID_REQUEST] if is_meaningless(rule) else theirs)


@pytest.fixture(scope="module")
def keeper(pair: tuple[str, str]) -> Iterator[str]:
    """A user with `SOME_RULES` on both servers."""
    for bootstrap in pair:
        assert create(bootstrap, *SOME_RULES, user="keeper") == [ErrorCode.NONE] * len(SOME_RULES)
        await_rules(bootstrap, "keeper", len(SOME_RULES))
    yield "keeper"
    for bootstrap in pair:
        delete(bootstrap, {}, user="keeper")


@pytest.mark.parametrize("choice", [*filters()], ids=str)
def test_description_of_rules_matches_kafka(
    pair: tuple[str, str], keeper: str, choice: Values
) -> None:
    ours, theirs = (describe(bootstrap, choice, keeper) for bootstrap in pair)

    refused: Result = (ErrorCode.INVALID_REQUEST, [])
    assert ours == (refused if is_meaningless(choice, is_filter=True) else theirs)


DELETED: list[Values] = [
    {},
    *({"resource_type_filter": number} for number in (0, 2, 5)),
    *({"pattern_type_filter": number, "resource_name_filter": "birds"} for number in range(6)),
    *({"pattern_type_filter": number, "resource_name_filter": "*"} for number in range(1, 5)),
    {"permission_type": 2},
    {"operation": 3},
    {"operation": 99},
    {"host_filter": "10.0.0.1"},
]
"""Filters of deletions; those of descriptions are the same, and more."""


@pytest.mark.parametrize("choice", DELETED, ids=str)
def test_deletion_of_rules_matches_kafka(pair: tuple[str, str], user: str, choice: Values) -> None:
    for bootstrap in pair:
        create(bootstrap, *SOME_RULES, user=user)
        await_rules(bootstrap, user, len(SOME_RULES))

    ours, theirs = (delete(bootstrap, choice, {"operation": 4}, user=user) for bootstrap in pair)
    rest = describe(pair[0], {}, user)
    if is_meaningless(choice, is_filter=True):
        assert ours[0] == (ErrorCode.INVALID_REQUEST, [])
    else:
        assert ours == theirs
        # Kafka's broker follows its controller.
        wait_until(lambda: describe(pair[1], {}, user), accepts=lambda known: known == rest)
    for bootstrap in pair:
        delete(bootstrap, {}, user=user)


# Users.


def set_to(user: str, mechanism: int = SHA_256, iterations: int = 4096, **secret: bytes) -> Message:
    known = {"salt": b"salt", "salted_password": b"x" * 32, **secret}
    return ScramCredentialUpsertion(name=user, mechanism=mechanism, iterations=iterations, **known)


def removed(user: str, mechanism: int = SHA_256) -> Message:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


KNOWN_USER, OTHER_USER = "@known", "@other"
"""Placeholders of a user with a credential of SCRAM-SHA-256, and of one without any."""
CHANGES: dict[str, list[Message]] = {
    "another mechanism": [set_to(KNOWN_USER, SHA_512)],
    "again": [set_to(KNOWN_USER)],
    "removed": [removed(KNOWN_USER)],
    "another mechanism removed": [removed(KNOWN_USER, SHA_512)],
    "unknown user removed": [removed(OTHER_USER)],
    "removed twice": [removed(KNOWN_USER), removed(KNOWN_USER)],
    "removed and set": [removed(KNOWN_USER), set_to(KNOWN_USER)],
    "set twice": [set_to(OTHER_USER), set_to(OTHER_USER)],
    "removed with and without": [removed(KNOWN_USER), removed(OTHER_USER)],
    "good and bad": [set_to(OTHER_USER), set_to(KNOWN_USER, iterations=1)],
    "no name": [set_to("")],
    "no name removed": [removed("")],
    "no name twice": [set_to(""), set_to("")],
    "nothing": [],
    "long name": [set_to("x" * 20_000)],
    **{
        f"mechanism {number}": [set_to(OTHER_USER, number)] for number in (-1, 0, 3, 127)
    },
    **{
        f"mechanism {number} removed": [removed(KNOWN_USER, number)] for number in (-1, 0, 3, 127)
    },
    **{
        f"{number} iterations": [set_to(OTHER_USER, iterations=number)]
        for number in (-1, 0, 4095, 4096, 16_384, 16_385, 2**31 - 1)
    },
    "two faults": [set_to("", 0, 1)],
    "few iterations of an unknown mechanism": [set_to(OTHER_USER, 0, 1)],
}  # fmt: skip


def alter(bootstrap: str, changes: list[Message]) -> Result:
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    answer = ask(bootstrap, ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    if answer == CLOSED:
        return answer
    return sorted((result.user, result.error_code) for result in answer.results)


def describe_users(bootstrap: str, names: list[str] | None) -> Result:
    users = None if names is None else [UserName(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=users)
    answer = ask(bootstrap, DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request)
    if answer == CLOSED:
        return answer
    results = [
        (result.user, result.error_code,
         sorted((info.mechanism, info.iterations) for info in result.credential_infos))
        for result in answer.results
    ]  # fmt: skip
    return answer.error_code, sorted(results)


def add_known_user(bootstrap: str, user: str) -> None:
    assert alter(bootstrap, [set_to(user)]) == [(user, ErrorCode.NONE)]
    wait_until(
        lambda: describe_users(bootstrap, [user])[1][0][1],
        accepts=lambda code: code is ErrorCode.NONE,
    )


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_users_matches_kafka(pair: tuple[str, str], user: str, name: str) -> None:
    names = {KNOWN_USER: user, OTHER_USER: f"{user}-other"}
    changes = [
        change.replace(name=names.get(change.name, change.name))  # type: ignore[attr-defined] # both have a name
        for change in CHANGES[name]
    ]
    for bootstrap in pair:
        add_known_user(bootstrap, user)

    ours, theirs = (alter(bootstrap, changes) for bootstrap in pair)
    users = [*names.values()]
    mine = describe_users(pair[0], users)
    try:
        # Kafka's broker follows its controller.
        wait_until(lambda: describe_users(pair[1], users), accepts=lambda other: other == mine)
    finally:
        for bootstrap in pair:
            for each in {*users, *(change.name for change in changes)}:  # type: ignore[attr-defined] # as above
                alter(bootstrap, [removed(each)])
                alter(bootstrap, [removed(each, SHA_512)])

    assert ours == theirs


@pytest.mark.parametrize(("salt", "salted_password"), [(b"", b"x" * 32), (b"salt", b"")])
def test_empty_secret_is_refused(
    pair: tuple[str, str], user: str, salt: bytes, salted_password: bytes
) -> None:
    """Kafka accepts an empty salt, and has an unexpected error for an empty password."""
    assert alter(pair[0], [set_to(user, salt=salt, salted_password=salted_password)]) == [
        (user, ErrorCode.UNACCEPTABLE_CREDENTIAL)
    ]


@pytest.mark.parametrize(
    "names",
    [["@"], ["@", "@"], ["missing-user"], [""], ["@", "missing-user", "missing-user"]],
    ids=str,
)
def test_description_of_users_matches_kafka(
    pair: tuple[str, str], user: str, names: list[str]
) -> None:
    asked = [name.replace("@", user) for name in names]
    for bootstrap in pair:
        add_known_user(bootstrap, user)

    ours, theirs = (describe_users(bootstrap, asked) for bootstrap in pair)
    for bootstrap in pair:
        alter(bootstrap, [removed(user)])

    assert ours == theirs
