"""Fuzz ACLs, filters and quotas from requests: `python fuzz/rules.py -max_total_time=60`.

Any request gives rules, filters and quotas or an ApiError. Accepted ones can be stored, chosen
by a filter and enforced.
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["rookery"]):
    from rookery.broker.acls import write_filter, write_rule
    from rookery.errors import ApiError, ProtocolError
    from rookery.security.access import Operation
    from rookery.security.acl import AclBinding, read_creation, read_filter
    from rookery.security.aclrules import AclRules, ProtectedResource
    from rookery.security.quota import (
        QuotaEntity,
        QuotaKey,
        QuotaTable,
        read_changes,
        read_entity,
        read_quota_filter,
    )
    from rookery.wire.codec import decode, encode_bytes
    from rookery.wire.messages.create_acls import AclCreation, CreateAclsRequest
    from rookery.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
    from rookery.wire.messages.describe_acls import DescribeAclsRequest

_NAMES = [
    "birds", "", "*", "kafka-cluster", "User:alice", "User:*", "User:", ":", "alice", "127.0.0.1",
    "::1", "::ffff:127.0.0.1", "::ffff:1.2.3", "1.2.3.4.5", "fe80::1%lo", "0", "256.0.0.1", "\0",
    "a" * 300, "🐦", "user", "client-id", "ip", "<default>", "producer_byte_rate",
    "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
]  # fmt: skip
_VALUES = [
    0.0, -0.0, -1.0, 1.0, 1.5, 2.0**31, 2.0**63, 1e308, 5e-324, float("inf"), float("-inf"),
    float("nan"), 9.99e18,
]  # fmt: skip


def _name(data: atheris.FuzzedDataProvider) -> str:
    is_known = data.ConsumeIntInRange(0, 3) > 0
    return data.PickValueInList(_NAMES) if is_known else data.ConsumeUnicodeNoSurrogates(12)


def _maybe(data: atheris.FuzzedDataProvider) -> str | None:
    return _name(data) if data.ConsumeBool() else None


def _number(data: atheris.FuzzedDataProvider) -> int:
    return data.ConsumeIntInRange(-128, 127 if data.ConsumeBool() else 15)


def _creation(data: atheris.FuzzedDataProvider) -> AclCreation:
    return AclCreation(
        resource_type=_number(data),
        resource_name=_name(data),
        resource_pattern_type=_number(data),
        principal=_name(data),
        host=_name(data),
        operation=_number(data),
        permission_type=_number(data),
    )


def _check_rules(data: atheris.FuzzedDataProvider) -> None:
    rules: list[AclBinding] = []
    asked = [_creation(data) for _ in range(data.ConsumeIntInRange(1, 4))]
    request = CreateAclsRequest(creations=asked)
    for creation in decode(CreateAclsRequest, 3, encode_bytes(request, 3)).creations:
        with contextlib.suppress(ApiError):
            rules.append(read_creation(creation))
            write_rule(rules[-1])
    table = AclRules(rules)
    chosen = DeleteAclsFilter(
        resource_type_filter=_number(data),
        resource_name_filter=_maybe(data),
        pattern_type_filter=_number(data),
        principal_filter=_maybe(data),
        host_filter=_maybe(data),
        operation=_number(data),
        permission_type=_number(data),
    )
    with contextlib.suppress(ApiError):
        choice = read_filter(chosen)
        write_filter(choice)
        list(table.select(choice))
    for rule in rules:
        resource = ProtectedResource(rule.resource_type, _name(data))
        table.decide(rule.principal, rule.host, Operation.READ, resource)


def _check_quotas(data: atheris.FuzzedDataProvider) -> None:
    quotas: dict[QuotaEntity, dict[str, float]] = {}
    parts = [(_name(data), _maybe(data)) for _ in range(data.ConsumeIntInRange(0, 3))]
    with contextlib.suppress(ApiError):
        entity = read_entity(parts)
        changes = [(_name(data), data.PickValueInList([None, *_VALUES])) for _ in range(3)]
        checked = read_changes(entity, changes)
        quotas[entity] = {key: value for key, value in checked.items() if value is not None}
        if read_entity(entity.parts()) != entity:
            raise AssertionError(f"{entity} does not come back")
    table = QuotaTable(quotas)
    for key in QuotaKey:
        table.find(key, _name(data), _name(data))
    table.find_ip(_name(data))
    components = [
        (_name(data), _number(data), _maybe(data)) for _ in range(data.ConsumeIntInRange(0, 3))
    ]
    with contextlib.suppress(ApiError):
        choice = read_quota_filter(components, strict=data.ConsumeBool())
        for entity in quotas:
            choice.matches(entity)


def _check_bytes(data: atheris.FuzzedDataProvider) -> None:
    """Read requests of random bytes."""
    raw = data.ConsumeBytes(200)
    with contextlib.suppress(ProtocolError, ApiError):
        for creation in decode(CreateAclsRequest, 3, raw).creations:
            read_creation(creation)
    with contextlib.suppress(ProtocolError, ApiError):
        for entry_filter in decode(DeleteAclsRequest, 3, raw).filters:
            read_filter(entry_filter)
    with contextlib.suppress(ProtocolError, ApiError):
        read_filter(decode(DescribeAclsRequest, 3, raw))


def test_one_input(raw: bytes) -> None:
    """Check one set of rules, of quotas, or one request of any bytes."""
    data = atheris.FuzzedDataProvider(raw)
    check = data.PickValueInList([_check_rules, _check_quotas, _check_bytes])
    check(data)


def main() -> None:
    """Fuzz until told to stop."""
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
