"""Proxies with virtual partitions before Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from rookery.proxy.settings import ProxySettings
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until

V, P = 12, 4
SETTINGS = replace(
    ProxySettings(),
    nodes="proxy",
    virtual={
        "topics": {
            "virtual-.*": {"virtual_partitions": V, "physical_partitions": P},
            "block-.*": {"virtual_partitions": V, "physical_partitions": P, "layout": "block"},
        }
    },
)


@pytest.fixture(scope="module")
def proxy(kafka: KafkaServer) -> Iterator[ServedProxy]:
    """A proxy that shows topics of P partitions with V of them."""
    with ServedProxy(kafka.bootstrap, SETTINGS) as proxy:
        yield proxy


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    """A topic of P partitions, which the proxy shows with V."""
    return create(kafka.bootstrap, f"virtual-{uuid4().hex}", P, {"retention.ms": "-1"})


def create(
    bootstrap: str, name: str, partitions: int, settings: dict[str, str], replicas: int = 1
) -> str:
    """Create a topic; return its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(20)
    # The controller answers before the broker leads the partitions.
    ends = {TopicPartition(name, number): _latest() for number in range(partitions)}
    wait_until(lambda: has_leaders(admin, ends), "the partitions have leaders")
    return name


def _latest() -> OffsetSpec:
    spec: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # it has no types
    return spec


def has_leaders(admin: AdminClient, ends: dict[TopicPartition, OffsetSpec]) -> bool:
    """Return whether the leaders of all partitions answer."""
    try:
        return all(each.result(20).offset == 0 for each in admin.list_offsets(ends).values())
    except KafkaException:
        return False
