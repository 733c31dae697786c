"""Access rules: there are none, and clients learn so."""

from __future__ import annotations

import pytest

from rookery.broker.acls import NO_AUTHORIZER
from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest

ANY = 1
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3


@pytest.mark.parametrize("version", range(1, 4))
def test_acl_requests_are_refused(broker: ServedBroker, version: int) -> None:
    described = ask(
        broker.bootstrap,
        DESCRIBE_ACLS,
        version,
        DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        ),
    )
    rule = AclCreation(
        resource_type=TOPIC, resource_name="t", resource_pattern_type=LITERAL,
        principal="User:a", host="*", operation=READ, permission_type=ALLOW,
    )  # fmt: skip
    request = CreateAclsRequest(creations=[rule, rule])
    created = ask(broker.bootstrap, CREATE_ACLS, version, request)
    everything = DeleteAclsFilter(
        resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
        principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    deleted = ask(broker.bootstrap, DELETE_ACLS, version, DeleteAclsRequest(filters=[everything]))

    refused = (ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    assert (described.error_code, described.error_message) == refused
    assert [(row.error_code, row.error_message) for row in created.results] == [refused] * 2
    [answer] = deleted.filter_results
    assert (answer.error_code, answer.error_message) == refused
