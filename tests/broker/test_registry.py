"""What routes say about their APIs: what they change, which resources they touch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.broker.call import Route, hidden_when_read_only, routes
from rookery.security.access import Access, AccessScope, AclResource, Operation
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.wire.catalog import FIRST_OWN_KEY
from rookery.wire.message import GroupId, TopicId, TopicName, TransactionalId
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.fetch import FetchRequest, ReplicaState
from rookery.wire.walk import has_kind
from tests.broker.conftest import Start

HIDDEN = {
    "AddOffsetsToTxn", "AddPartitionsToTxn", "AlterClientQuotas", "AlterConfigs",
    "AlterUserScramCredentials", "CreateDelegationToken", "CreatePartitions", "CreateTopics",
    "DeleteRecords", "DeleteTopics", "EndTxn", "ExpireDelegationToken", "IncrementalAlterConfigs",
    "InitProducerId", "RenewDelegationToken", "TxnOffsetCommit", "UpdateFeatures",
    "WriteTxnMarkers",
}  # fmt: skip
# APIs that change state and that a read-only broker serves: groups live in memory there, Metadata
# creates no topics, and Produce is refused.
KEPT = {
    "ConsumerGroupHeartbeat", "CreateAcls", "DeleteAcls", "DeleteGroups", "Heartbeat", "JoinGroup",
    "LeaveGroup", "Metadata", "OffsetCommit", "OffsetDelete", "Produce", "SyncGroup",
}  # fmt: skip
# APIs that anyone may use; those that change a token ask for its owner or a renewer.
OPEN = {
    "ApiVersions", "ExpireDelegationToken", "GetTelemetrySubscriptions", "PushTelemetry",
    "RenewDelegationToken", "SaslAuthenticate", "SaslHandshake",
}  # fmt: skip
KINDS = {
    AclResource.TOPIC: (TopicName, TopicId),
    AclResource.GROUP: (GroupId,),
    AclResource.TRANSACTIONAL_ID: (TransactionalId,),
}
# Requests with a field that gives the type of the names next to it.
TYPED_BY_NEIGHBOUR = {
    "AlterConfigs", "DescribeConfigs", "FindCoordinator", "IncrementalAlterConfigs",
}  # fmt: skip

each_route = pytest.mark.parametrize("route", routes().values(), ids=lambda route: route.api.name)


def kafka_routes() -> Iterator[Route]:
    """The routes of APIs that Kafka has, too."""
    return (route for key, route in routes().items() if key < FIRST_OWN_KEY)


def names(*, mutates: bool, is_served_read_only: bool) -> set[str]:
    """The APIs of Kafka with these traits."""
    return {
        route.api.name
        for route in kafka_routes()
        if (route.mutates, route.is_served_read_only) == (mutates, is_served_read_only)
    }


def rows(route: Route, resource: AclResource) -> list[Access]:
    """What a route says about resources of a type that its requests name."""
    return [
        row for row in route.touches if row.resource is resource and row.scope is AccessScope.NAMED
    ]


def test_read_only_brokers_hide_mutating_apis() -> None:
    hidden = {
        route.api.name for route in kafka_routes() if route.api.key in hidden_when_read_only()
    }
    assert hidden == HIDDEN
    assert names(mutates=True, is_served_read_only=False) == HIDDEN
    assert names(mutates=True, is_served_read_only=True) == KEPT
    assert not names(mutates=False, is_served_read_only=False)


def test_a_read_only_broker_does_not_advertise_hidden_apis(start: Start) -> None:
    broker: ServedBroker = start(read_only=True)

    answer = ask(
        broker.bootstrap,
        API_VERSIONS,
        3,
        ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    )

    assert {api.api_key for api in answer.api_keys} == set(routes()) - hidden_when_read_only()


@each_route
def test_every_api_declares_its_resources_or_is_open_to_all(route: Route) -> None:
    assert bool(route.touches) is (route.api.name not in OPEN)


@each_route
@pytest.mark.parametrize("resource", KINDS, ids=lambda resource: resource.name)
def test_access_rows_match_the_names_in_requests(route: Route, resource: AclResource) -> None:
    has_names = any(has_kind(route.api.request, kind) for kind in KINDS[resource])
    is_about_cluster = any(row.scope is AccessScope.WHOLE for row in route.touches)

    if rows(route, resource):
        assert has_names or route.api.name in TYPED_BY_NEIGHBOUR
    elif has_names:
        # A permission on the cluster includes each of its resources.
        assert is_about_cluster


@each_route
def test_every_condition_can_be_documented(route: Route) -> None:
    for row in route.touches:
        assert row.when is None or (row.when.__doc__ or "").endswith(".")


def test_conditions_and_versions_select_rows() -> None:
    fetch, add_partitions = routes()[1], routes()[24]
    consumer = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    follower = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], replica_id=1)
    newer = FetchRequest(
        max_wait_ms=1, min_bytes=1, topics=[], replica_state=ReplicaState(replica_id=1)
    )

    def needs(route: Route, version: int, request: object) -> set[tuple[str, str]]:
        return {
            (row.resource.name, row.operation.name)
            for row in route.touches
            if row.applies(version, request)
        }

    assert needs(fetch, 12, consumer) == {("TOPIC", "READ")}
    assert needs(fetch, 12, follower) == {("CLUSTER", "CLUSTER_ACTION")}
    assert needs(fetch, 17, newer) == {("CLUSTER", "CLUSTER_ACTION")}
    assert needs(add_partitions, 3, None) == {("TOPIC", "WRITE"), ("TRANSACTIONAL_ID", "WRITE")}
    assert needs(add_partitions, 4, None) == {("CLUSTER", "CLUSTER_ACTION")}


def text(row: Access) -> str:
    """A row in few words."""
    scope = "" if row.scope is AccessScope.NAMED else f" {row.scope.value}"
    instead = f" or {row.or_on_cluster.name}" if row.or_on_cluster is not None else ""
    return f"{row.operation.name}{scope}{instead}"


def table(resource: AclResource) -> dict[str, set[str]]:
    """Operations on one type of resource, with the APIs that need them."""
    by_operation: dict[str, set[str]] = {}
    for route in kafka_routes():
        for row in route.touches:
            if row.resource is resource:
                by_operation.setdefault(text(row), set()).add(route.api.name)
    return by_operation


def test_access_rows_are_those_of_kafka() -> None:
    assert table(AclResource.TOPIC) == {
        "WRITE": {"Produce", "AddPartitionsToTxn"},
        "READ": {"Fetch", "OffsetCommit", "TxnOffsetCommit", "OffsetDelete", "DescribeProducers"},
        "DESCRIBE": {
            "Metadata", "ListOffsets", "OffsetFetch", "DescribeTopicPartitions",
            "ConsumerGroupHeartbeat",
        },
        "DESCRIBE or CLUSTER_ACTION": {"OffsetForLeaderEpoch"},
        "DESCRIBE listed": {
            "Metadata", "OffsetFetch", "DescribeTopicPartitions", "DescribeTransactions",
            "ConsumerGroupDescribe",
        },
        "DELETE or DELETE": {"DeleteTopics"},
        "DELETE": {"DeleteRecords"},
        "ALTER": {"CreatePartitions"},
        "CREATE or CREATE": {"CreateTopics", "Metadata"},
        "DESCRIBE_CONFIGS": {"DescribeConfigs", "CreateTopics"},
        "ALTER_CONFIGS": {"AlterConfigs", "IncrementalAlterConfigs"},
        "WRITE any or IDEMPOTENT_WRITE": {"InitProducerId"},
    }  # fmt: skip
    assert table(AclResource.GROUP) == {
        "READ": {
            "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit",
            "TxnOffsetCommit", "AddOffsetsToTxn", "ConsumerGroupHeartbeat",
        },
        "DESCRIBE": {"OffsetFetch", "DescribeGroups", "ConsumerGroupDescribe", "FindCoordinator"},
        "DESCRIBE listed or DESCRIBE": {"ListGroups"},
        "DELETE": {"DeleteGroups", "OffsetDelete"},
        "DESCRIBE_CONFIGS": {"DescribeConfigs"},
        "ALTER_CONFIGS": {"AlterConfigs", "IncrementalAlterConfigs"},
    }  # fmt: skip
    assert table(AclResource.TRANSACTIONAL_ID) == {
        "WRITE": {
            "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
            "TxnOffsetCommit", "Produce",
        },
        "DESCRIBE": {"FindCoordinator", "DescribeTransactions"},
        "DESCRIBE listed": {"ListTransactions"},
    }  # fmt: skip
    assert table(AclResource.CLUSTER) == {
        "DESCRIBE whole": {
            "DescribeAcls", "DescribeLogDirs", "DescribeQuorum", "ListPartitionReassignments",
            "DescribeCluster", "DescribeUserScramCredentials", "Metadata",
        },
        "ALTER whole": {
            "CreateAcls", "DeleteAcls", "ElectLeaders", "UpdateFeatures",
            "AlterPartitionReassignments", "AlterUserScramCredentials",
        },
        "ALTER whole or CLUSTER_ACTION": {"WriteTxnMarkers"},
        "CLUSTER_ACTION whole": {"AddPartitionsToTxn", "Fetch", "FindCoordinator"},
        "DESCRIBE_CONFIGS whole": {"DescribeClientQuotas", "ListConfigResources"},
        "ALTER_CONFIGS whole": {"AlterClientQuotas"},
        "DESCRIBE_CONFIGS": {"DescribeConfigs"},
        "ALTER_CONFIGS": {"AlterConfigs", "IncrementalAlterConfigs"},
    }  # fmt: skip


def test_operations_have_kafkas_numbers() -> None:
    assert Operation(3) is Operation.READ
    assert (Operation.IDEMPOTENT_WRITE, AclResource.TRANSACTIONAL_ID) == (12, 5)
