"""The brokers of the upstream that answer each request: one row for each API.

An API without a row is refused, and `tests/proxy/nodes/test_routes.py` fails. Some APIs are refused
by name, because they only make sense where the nodes of the cluster are its brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rookery.wire.catalog import kafka_apis
from rookery.wire.message import Api


class RouteKind(Enum):
    """How the brokers for a request are chosen."""

    FETCH = "fetch"
    """The leaders of its partitions; the answer is sent when the sum suffices."""
    PRODUCE = "produce"
    """The leaders of its partitions, in the order of each partition."""
    LEADER = "leader"
    """The leaders of its partitions."""
    GROUP = "group"
    """The coordinators of its groups."""
    TRANSACTION = "transaction"
    """The coordinators of its transactional ids."""
    CONTROLLER = "controller"
    """The controller, or the broker that forwards to it."""
    ANY = "any"
    """Any broker; another one if that fails."""
    EVERY = "every"
    """Every broker for which this instance stands."""
    RESOURCE = "resource"
    """The broker that a resource names, else as for READ or ANY."""
    VERSIONS = "versions"
    """All brokers, in advance."""
    LOGIN = "login"
    """None: logins end at the proxy."""
    REFUSED = "refused"
    """None: the API is not offered."""


class ApiRoute(NamedTuple):
    """The row of one API."""

    kind: RouteKind
    is_change: bool = False
    """Whether the request changes something, so that it is not sent a second time."""


_READ: Final = ApiRoute(RouteKind.ANY)
_CHANGE: Final = ApiRoute(RouteKind.CONTROLLER, is_change=True)
_LEADER: Final = ApiRoute(RouteKind.LEADER)
_GROUP: Final = ApiRoute(RouteKind.GROUP, is_change=True)
_TRANSACTION: Final = ApiRoute(RouteKind.TRANSACTION, is_change=True)
_EVERY: Final = ApiRoute(RouteKind.EVERY)
_LOGIN: Final = ApiRoute(RouteKind.LOGIN)
# Brokers and controllers send these to each other.
_INTERNAL: Final = ApiRoute(RouteKind.REFUSED)
# Their members hold sessions with each broker.
_SHARE: Final = ApiRoute(RouteKind.REFUSED)
# They name brokers, and clients do not know the upstream's.
_BROKERS: Final = ApiRoute(RouteKind.REFUSED)

ROUTES: Final[Mapping[str, ApiRoute]] = MappingProxyType(
    {
        "AddOffsetsToTxn": _TRANSACTION,
        "AddPartitionsToTxn": _TRANSACTION,
        "AddRaftVoter": _CHANGE,
        "AllocateProducerIds": _INTERNAL,
        "AlterClientQuotas": _CHANGE,
        "AlterConfigs": ApiRoute(RouteKind.RESOURCE, is_change=True),
        "AlterPartition": _INTERNAL,
        "AlterPartitionReassignments": _BROKERS,
        "AlterReplicaLogDirs": _BROKERS,
        "AlterShareGroupOffsets": _SHARE,
        "AlterUserScramCredentials": _CHANGE,
        "ApiVersions": ApiRoute(RouteKind.VERSIONS),
        "AssignReplicasToDirs": _INTERNAL,
        "BeginQuorumEpoch": _INTERNAL,
        "BrokerHeartbeat": _INTERNAL,
        "BrokerRegistration": _INTERNAL,
        "ConsumerGroupDescribe": ApiRoute(RouteKind.GROUP),
        "ConsumerGroupHeartbeat": _GROUP,
        "ControllerRegistration": _INTERNAL,
        "CreateAcls": _CHANGE,
        "CreateDelegationToken": _CHANGE,
        "CreatePartitions": _CHANGE,
        "CreateTopics": _CHANGE,
        "DeleteAcls": _CHANGE,
        "DeleteGroups": _GROUP,
        "DeleteRecords": ApiRoute(RouteKind.LEADER, is_change=True),
        "DeleteShareGroupOffsets": _SHARE,
        "DeleteShareGroupState": _INTERNAL,
        "DeleteTopics": _CHANGE,
        "DescribeAcls": _READ,
        "DescribeClientQuotas": _READ,
        "DescribeCluster": _READ,
        "DescribeConfigs": ApiRoute(RouteKind.RESOURCE),
        "DescribeDelegationToken": _READ,
        "DescribeGroups": ApiRoute(RouteKind.GROUP),
        "DescribeLogDirs": _EVERY,
        "DescribeProducers": _LEADER,
        "DescribeQuorum": _READ,
        "DescribeShareGroupOffsets": _SHARE,
        "DescribeTopicPartitions": _READ,
        "DescribeTransactions": ApiRoute(RouteKind.TRANSACTION),
        "DescribeUserScramCredentials": _READ,
        "ElectLeaders": _CHANGE,
        "EndQuorumEpoch": _INTERNAL,
        "EndTxn": _TRANSACTION,
        "Envelope": _INTERNAL,
        "ExpireDelegationToken": _CHANGE,
        "Fetch": ApiRoute(RouteKind.FETCH),
        "FetchSnapshot": _INTERNAL,
        "FindCoordinator": _READ,
        # The broker that has answered the first remembers the client for the second.
        "GetTelemetrySubscriptions": _READ,
        "PushTelemetry": _READ,
        "Heartbeat": _GROUP,
        "IncrementalAlterConfigs": ApiRoute(RouteKind.RESOURCE, is_change=True),
        "InitProducerId": _TRANSACTION,
        "InitializeShareGroupState": _INTERNAL,
        "JoinGroup": _GROUP,
        "LeaveGroup": _GROUP,
        "ListConfigResources": _READ,
        "ListGroups": _EVERY,
        "ListOffsets": _LEADER,
        "ListPartitionReassignments": _BROKERS,
        "ListTransactions": _EVERY,
        "Metadata": _READ,
        "OffsetCommit": _GROUP,
        "OffsetDelete": _GROUP,
        "OffsetFetch": ApiRoute(RouteKind.GROUP),
        "OffsetForLeaderEpoch": _LEADER,
        "Produce": ApiRoute(RouteKind.PRODUCE, is_change=True),
        "ReadShareGroupState": _INTERNAL,
        "ReadShareGroupStateSummary": _INTERNAL,
        "RemoveRaftVoter": _CHANGE,
        "RenewDelegationToken": _CHANGE,
        "SaslAuthenticate": _LOGIN,
        "SaslHandshake": _LOGIN,
        "ShareAcknowledge": _SHARE,
        "ShareFetch": _SHARE,
        "ShareGroupDescribe": _SHARE,
        "ShareGroupHeartbeat": _SHARE,
        "StreamsGroupDescribe": ApiRoute(RouteKind.GROUP),
        "StreamsGroupHeartbeat": _GROUP,
        "SyncGroup": _GROUP,
        # It names a transactional id, too, but is for the coordinator of the group.
        "TxnOffsetCommit": _GROUP,
        "UnregisterBroker": _BROKERS,
        "UpdateFeatures": _CHANGE,
        "UpdateRaftVoter": _INTERNAL,
        "Vote": _INTERNAL,
        "WriteShareGroupState": _INTERNAL,
        # Tools abort hanging transactions with it.
        "WriteTxnMarkers": ApiRoute(RouteKind.LEADER, is_change=True),
    }
)


def route_of(api: Api[Any, Any]) -> ApiRoute:
    """Return the row of an API; one without a row is refused."""
    return ROUTES.get(api.name, _INTERNAL)


def list_refused_apis() -> frozenset[str]:
    """Return the names of the APIs that clients of broker nodes cannot use."""
    return frozenset(
        api.name for api in kafka_apis().values() if route_of(api).kind is RouteKind.REFUSED
    )
