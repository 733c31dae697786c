"""The scenarios of clients on three brokers: both layouts, and a topic of V partitions itself."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from rookery.testing.kafka import KafkaCluster
from rookery.testing.servedproxy import ServedProxy
from tests.proxy.virtual.conftest import SETTINGS, P, V, create
from tests.proxy.virtual.test_clients import (
    test_a_group_reads_everything_once_in_order_and_resumes,
    test_the_end_of_a_partition_is_found,
)

__all__ = [
    "test_a_group_reads_everything_once_in_order_and_resumes",
    "test_the_end_of_a_partition_is_found",
]

REPLICAS = 3


@pytest.fixture(scope="module")
def clustered(kafka_cluster: KafkaCluster) -> Iterator[ServedProxy]:
    """A proxy before three brokers."""
    with ServedProxy(kafka_cluster.bootstrap, SETTINGS) as proxy:
        yield proxy


@pytest.fixture(params=["virtual", "block", "oracle"])
def place(
    request: pytest.FixtureRequest, kafka_cluster: KafkaCluster, clustered: ServedProxy
) -> tuple[str, str]:
    """Where clients connect, and the topic; the oracle is a topic of V partitions, directly."""
    name = f"{request.param}-{uuid4().hex}"
    is_oracle = request.param == "oracle"
    create(kafka_cluster.bootstrap, name, V if is_oracle else P, {"retention.ms": "-1"}, REPLICAS)
    return kafka_cluster.bootstrap if is_oracle else clustered.bootstrap, name
