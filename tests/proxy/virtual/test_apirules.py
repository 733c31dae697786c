"""Every API with a partition, an offset or a producer id is translated, refused or hidden."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.proxy.nodes.routes import list_refused_apis
from rookery.proxy.virtual.apirules import (
    VIRTUAL_ROUTES,
    VirtualRoute,
    route_of,
    virtual_passages,
)
from rookery.wire.catalog import kafka_apis
from rookery.wire.cutplan import plan_cut
from rookery.wire.message import (
    Api,
    Offset,
    PartitionCount,
    PartitionId,
    ProducerId,
    TopicId,
    TopicName,
    kind_of,
)
from rookery.wire.walk import has_kind

KINDS = (PartitionId, PartitionCount, Offset, ProducerId)
APIS = {api.name: api for api in kafka_apis().values()}
PASSAGES = virtual_passages((), list_refused_apis())
PASSING = [api for api in APIS.values() if PASSAGES.versions(api.key)]
# Their fields are not those of topics with virtual partitions, which no transaction can have.
WITHOUT_TOPICS = {"AddOffsetsToTxn", "EndTxn", "InitProducerId", "ListTransactions"}


def concerns(api: Api[Any, Any]) -> bool:
    """Return whether an API has a field that virtual partitions change."""
    return any(has_kind(message, kind) for message in (api.request, api.response) for kind in KINDS)


@pytest.mark.parametrize("api", PASSING, ids=lambda api: api.name)
def test_every_api_that_concerns_partitions_has_a_row(api: Api[Any, Any]) -> None:
    assert not concerns(api) or api.name in VIRTUAL_ROUTES


def test_apis_that_pass_name_no_partition_of_a_topic() -> None:
    passed = {api.name for api in PASSING if route_of(api.name) is VirtualRoute.PASSED}

    assert {name for name in passed if concerns(APIS[name])} == WITHOUT_TOPICS | {"DescribeQuorum"}
    for name in WITHOUT_TOPICS:
        for message in (APIS[name].request, APIS[name].response):
            assert not has_kind(message, PartitionId)
            assert not has_kind(message, Offset)


def test_hidden_apis_are_not_offered() -> None:
    hidden = {name for name, route in VIRTUAL_ROUTES.items() if route is VirtualRoute.HIDDEN}

    assert hidden.isdisjoint(api.name for api in PASSING)
    assert set(VIRTUAL_ROUTES) <= set(APIS)


@pytest.mark.parametrize("api", PASSING, ids=lambda api: api.name)
def test_refused_topics_are_cut_out_by_name_in_every_version(api: Api[Any, Any]) -> None:
    is_cut = route_of(api.name) is VirtualRoute.TOPIC_REFUSED or api.name == "ListOffsets"
    for version in PASSAGES.versions(api.key) if is_cut else ():
        assert plan_cut(api, version, (kind_of(TopicName),)).paths
        assert not plan_cut(api, version, (kind_of(TopicId),)).paths


@pytest.mark.parametrize("name", ["Produce", "Fetch", "OffsetCommit", "OffsetFetch"])
def test_translated_apis_name_topics_in_every_version(name: str) -> None:
    api = APIS[name]
    for version in PASSAGES.versions(api.key):
        assert not plan_cut(api, version, (kind_of(TopicId),)).paths
