"""Filters of broker nodes: they see whole requests, and their own requests are routed, too."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from rookery.proxy.filterapi import (
    FORWARD,
    Filter,
    FilterContext,
    Forward,
    Verdict,
    on_request,
    on_response,
)
from rookery.proxy.filters.topic_prefix import TopicPrefix
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.messages.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from tests.proxy.nodes.conftest import NODES
from tests.proxy.test_filters import Marking
from tests.proxy.test_topic_prefix import (
    create,
    prefix,
    test_clients_see_their_own_topics_without_the_prefix,
    test_records_and_groups_pass,
)

__all__ = [
    "prefix",
    "test_clients_see_their_own_topics_without_the_prefix",
    "test_records_and_groups_pass",
]


@pytest.fixture(scope="module")
def server(brokers: list[ServedBroker]) -> str:
    """The addresses of the proxy's upstream."""
    return ",".join(broker.bootstrap for broker in brokers)


@pytest.fixture(scope="module")
def prefixed(server: str, prefix: str) -> Iterator[str]:
    with ServedProxy(server, NODES, [TopicPrefix({"prefix": prefix})]) as proxy:
        yield proxy.bootstrap


class Asking(Filter):
    """Adds what an own request to the leaders of a topic is answered."""

    @on_response(DESCRIBE_CLUSTER)
    async def ask(self, context: FilterContext, response: DescribeClusterResponse) -> Verdict:
        rows = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(3)]
        topic = ListOffsetsTopic(name=self.options["topic"], partitions=rows)
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        answer = await context.upstream.send(LIST_OFFSETS, request)
        codes = [row.error_code.name for row in answer.topics[0].partitions]
        response.cluster_id = f"{context.node_id} {' '.join(codes)}"
        return Forward(response)


def test_own_requests_of_filters_are_routed(server: str) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    create(server, topic)
    with ServedProxy(server, NODES, [Asking({"topic": topic})]) as proxy:
        answer = ask(proxy.bootstrap, DESCRIBE_CLUSTER, 1, DescribeClusterRequest())

    assert answer.cluster_id == "1 NONE NONE UNKNOWN_TOPIC_OR_PARTITION"


class Noting(Filter):
    """Keeps what an own request at each request is answered."""

    @on_request(LIST_GROUPS)
    async def ask(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        answer = await context.upstream.send(METADATA, MetadataRequest(topics=[]))
        nodes = [(each.node_id, each.port) for each in answer.brokers]
        self.seen = [*getattr(self, "seen", []), (answer.cluster_id, nodes)]
        return FORWARD


def test_own_requests_pass_the_later_filters(server: str) -> None:
    first, noting, last = Marking({"name": "first"}), Noting(), Marking({"name": "last"})
    with ServedProxy(server, NODES, [first, noting, last]) as proxy:
        ask(proxy.bootstrap, LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))
        described = ask(proxy.bootstrap, METADATA, 9, MetadataRequest(topics=[]))

    assert described.cluster_id is not None
    cluster_id = described.cluster_id.removeprefix("first/last/")
    assert noting.seen == [(f"last/{cluster_id}", [(1, proxy.port)])]
    assert len(first.requests) == 1
    assert len(last.requests) == 2
