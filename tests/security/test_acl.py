"""Access rules and filters of rules as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rookery.errors import ApiError, ErrorCode
from rookery.model.acl import PatternType
from rookery.security.access import AclResource, Operation
from rookery.security.acl import (
    OPERATIONS,
    AclBinding,
    AclFilter,
    PermissionType,
    find_mistake,
    format_host,
    read_creation,
    read_filter,
)
from rookery.wire.messages.create_acls import AclCreation
from rookery.wire.messages.delete_acls import DeleteAclsFilter
from rookery.wire.messages.describe_acls import DescribeAclsRequest

RULE = AclBinding(
    AclResource.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    Operation.READ,
    PermissionType.ALLOW,
)


def creation(**changes: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**{**fields, **changes})


def test_each_type_of_resource_has_operations() -> None:
    assert OPERATIONS.keys() == set(AclResource)
    assert frozenset().union(*OPERATIONS.values()) == set(Operation) - {Operation.ALL}


def test_a_creation_becomes_a_rule() -> None:
    assert read_creation(creation()) == RULE


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 8},
        {"resource_name": ""},
        {"resource_type": 4, "resource_name": "orders"},
        {"resource_type": 4, "resource_name": "*"},
        {"resource_pattern_type": 0},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"resource_pattern_type": 5},
        {"operation": 0},
        {"operation": 1},
        {"operation": 99},
        {"permission_type": 0},
        {"permission_type": 1},
        {"permission_type": 4},
        {"principal": ""},
        {"principal": "alice"},
    ],
)
def test_an_invalid_creation_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ApiError) as caught:
        read_creation(creation(**changes))

    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": 4, "resource_name": "kafka-cluster"},
        {"resource_pattern_type": 4, "resource_name": "*"},
        {"operation": 15},
        {"operation": 12},
        {"principal": "User:"},
        {"principal": "Team:x:y"},
        {"host": "not-an-address"},
    ],
)
def test_what_kafka_accepts_is_accepted(changes: dict[str, object]) -> None:
    rule = read_creation(creation(**changes))

    assert isinstance(rule, AclBinding)


@pytest.mark.parametrize(
    "mistake",
    [
        replace(RULE, operation=Operation.CLUSTER_ACTION),
        replace(RULE, resource_type=AclResource.GROUP, operation=Operation.WRITE),
        replace(RULE, pattern_type=PatternType.PREFIXED, name="*"),
        replace(RULE, principal="User:"),
        replace(RULE, principal=":alice"),
        replace(RULE, principal="Team:*"),
        replace(RULE, host="broker.example.com"),
        replace(RULE, host="10.0.0.0/8"),
        replace(RULE, host="::1"),
    ],
)
def test_a_rule_without_effect_is_explained(mistake: AclBinding) -> None:
    assert find_mistake(mistake)


@pytest.mark.parametrize(
    "sound",
    [
        RULE,
        replace(RULE, operation=Operation.ALL, host="10.0.0.1"),
        replace(RULE, pattern_type=PatternType.PREFIXED),
        replace(RULE, principal="User:*", name="*"),
        replace(RULE, host="0:0:0:0:0:0:0:1"),
    ],
)
def test_a_sound_rule_has_no_mistake(sound: AclBinding) -> None:
    assert find_mistake(sound) is None


PREFIX = replace(RULE, pattern_type=PatternType.PREFIXED, name="ord")
STAR = replace(RULE, name="*")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (AclFilter(), [RULE, PREFIX, STAR]),
        (AclFilter(name="orders"), [RULE]),
        (AclFilter(name="ord"), [PREFIX]),
        (AclFilter(name="*"), [STAR]),
        (AclFilter(name="orders", pattern_type=PatternType.MATCH), [RULE, PREFIX, STAR]),
        (AclFilter(name="other", pattern_type=PatternType.MATCH), [STAR]),
        (AclFilter(name="or", pattern_type=PatternType.MATCH), [STAR]),
        (AclFilter(pattern_type=PatternType.MATCH), [RULE, PREFIX, STAR]),
        (AclFilter(pattern_type=PatternType.LITERAL), [RULE, STAR]),
        (AclFilter(name="orders", pattern_type=PatternType.LITERAL), [RULE]),
        (AclFilter(name="orders", pattern_type=PatternType.PREFIXED), []),
        (AclFilter(pattern_type=PatternType.PREFIXED), [PREFIX]),
        (AclFilter(resource_type=AclResource.GROUP), []),
        (AclFilter(resource_type=AclResource.TOPIC), [RULE, PREFIX, STAR]),
        (AclFilter(principal="User:alice"), [RULE, PREFIX, STAR]),
        (AclFilter(principal="User:*"), []),
        (AclFilter(host="10.0.0.1"), []),
        (AclFilter(host="*"), [RULE, PREFIX, STAR]),
        (AclFilter(operation=Operation.ALL), []),
        (AclFilter(operation=Operation.READ), [RULE, PREFIX, STAR]),
        (AclFilter(permission=PermissionType.DENY), []),
        (AclFilter(permission=PermissionType.ALLOW), [RULE, PREFIX, STAR]),
    ],
)
def test_a_filter_chooses_rules(choice: AclFilter, expected: list[AclBinding]) -> None:
    assert [
        rule for rule in (RULE, PREFIX, STAR) if choice.to_stored().matches(rule.to_stored())
    ] == expected


@pytest.mark.parametrize("kind", [DescribeAclsRequest, DeleteAclsFilter])
def test_a_filter_is_read_from_either_request(
    kind: type[DescribeAclsRequest] | type[DeleteAclsFilter],
) -> None:
    everything = kind(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    narrow = kind(
        resource_type_filter=2,
        resource_name_filter="orders",
        pattern_type_filter=2,
        principal_filter="User:alice",
        host_filter="*",
        operation=2,
        permission_type=2,
    )

    assert read_filter(everything) == AclFilter()
    assert read_filter(narrow) == AclFilter(
        resource_type=AclResource.TOPIC,
        pattern_type=PatternType.MATCH,
        name="orders",
        principal="User:alice",
        host="*",
        operation=Operation.ALL,
        permission=PermissionType.DENY,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type_filter": 0},
        {"pattern_type_filter": 0},
        {"pattern_type_filter": 9},
        {"operation": 0},
        {"permission_type": 7},
    ],
)
def test_a_filter_with_an_unknown_number_is_refused(changes: dict[str, int]) -> None:
    numbers = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    }
    message = DeleteAclsFilter(
        resource_name_filter=None, principal_filter=None, host_filter=None, **(numbers | changes)
    )

    with pytest.raises(ApiError) as caught:
        read_filter(message)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::00ff", "2001:db8:0:0:0:0:0:ff"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_addresses_are_written_as_java_writes_them(address: str, expected: str) -> None:
    assert format_host(address) == expected


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0.0/8", "*"])
def test_text_that_is_not_an_address_has_no_form(text: str) -> None:
    with pytest.raises(ValueError, match="IP"):
        format_host(text)


def test_a_rule_is_described_in_one_line() -> None:
    assert str(RULE) == "ALLOW User:alice READ on TOPIC 'orders'"
    assert str(replace(PREFIX, host="10.0.0.1", permission=PermissionType.DENY)) == (
        "DENY User:alice from 10.0.0.1 READ on TOPIC prefix 'ord'"
    )
