"""Every API has a row, and no broker of the upstream is named to clients."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.proxy.nodes.routes import ROUTES, RouteKind, list_refused_apis, route_of
from rookery.proxy.passage import mirror_passages
from rookery.wire.catalog import kafka_apis
from rookery.wire.cutplan import plan_cut
from rookery.wire.message import (
    Api,
    BrokerId,
    GroupId,
    PartitionId,
    TopicId,
    TopicName,
    TransactionalId,
    kind_of,
)
from rookery.wire.walk import has_kind

APIS = list(kafka_apis().values())
PASSING = [api for api in APIS if mirror_passages(refused=list_refused_apis()).versions(api.key)]
# The messages that `NodeView` rewrites.
SHOWN = {
    "DescribeCluster",
    "DescribeQuorum",
    "DescribeTopicPartitions",
    "Fetch",
    "FindCoordinator",
    "ListConfigResources",
    "Metadata",
    "Produce",
}
# Their answers name what the request has named.
RENAMED = {"AlterConfigs", "DescribeConfigs", "IncrementalAlterConfigs"}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_has_a_row(api: Api[Any, Any]) -> None:
    assert api.name in ROUTES, f"choose how broker nodes answer {api.name} (proxy/nodes/routes.py)"


def test_every_row_has_an_api() -> None:
    assert set(ROUTES) == {api.name for api in APIS}


def test_apis_that_mirror_nodes_refuse_are_refused() -> None:
    mirrored = {api.name for api in APIS if mirror_passages().versions(api.key)}

    assert {api.name for api in APIS} - mirrored <= list_refused_apis()


def test_no_broker_is_named_to_clients() -> None:
    naming = {api.name for api in PASSING if has_kind(api.response, BrokerId)}

    assert naming == SHOWN | RENAMED


@pytest.mark.parametrize(
    "api", [api for api in PASSING if route_of(api).kind is RouteKind.LEADER], ids=str
)
def test_requests_for_leaders_name_partitions_in_all_versions(api: Api[Any, Any]) -> None:
    kinds = tuple(map(kind_of, (TopicName, TopicId, PartitionId)))
    for version in api.versions:
        assert plan_cut(api, version, kinds).paths


@pytest.mark.parametrize(
    ("kind", "mark"), [(RouteKind.GROUP, GroupId), (RouteKind.TRANSACTION, TransactionalId)]
)
def test_requests_for_coordinators_name_their_key(kind: RouteKind, mark: object) -> None:
    for api in PASSING:
        if route_of(api).kind is kind:
            assert has_kind(api.request, mark), api.name
