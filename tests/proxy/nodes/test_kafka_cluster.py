"""Broker nodes before three brokers of Apache Kafka: the same clients, and Kafka's own tools."""

from __future__ import annotations

import pytest

from rookery.testing.kafka import KafkaCluster
from rookery.testing.servedproxy import ServedProxy
from tests.proxy.test_mirror import (
    test_clients_see_only_addresses_of_the_proxy,
    test_groups_share_and_commit,
    test_records_pass_in_order,
    test_transactions_pass,
    topic,
)

__all__ = [
    "test_clients_see_only_addresses_of_the_proxy",
    "test_groups_share_and_commit",
    "test_records_pass_in_order",
    "test_transactions_pass",
    "topic",
]


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster) -> str:
    """The addresses of the proxy's upstream."""
    return kafka_cluster.bootstrap


def tool(cluster: KafkaCluster, proxy: ServedProxy, name: str, *args: str) -> str:
    answer = cluster.tool(name, "--bootstrap-server", proxy.bootstrap, *args)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_tools_of_kafka_see_one_broker(
    kafka_cluster: KafkaCluster, proxy: ServedProxy, topic: str
) -> None:
    described = tool(kafka_cluster, proxy, "kafka-topics", "--describe", "--topic", topic)
    assert described.count("Leader: 1") == 3
    assert described.count("Isr: 1") == 3

    written = tool(
        kafka_cluster, proxy, "kafka-verifiable-producer", "--topic", topic, "--max-messages", "300"
    )
    assert '"acked":300' in written
    read = tool(
        kafka_cluster, proxy, "kafka-verifiable-consumer",
        *("--topic", topic, "--group-id", topic, "--max-messages", "300"),
        *("--reset-policy", "earliest"),
    )  # fmt: skip
    assert '"name":"offsets_committed"' in read

    groups = tool(kafka_cluster, proxy, "kafka-consumer-groups", "--describe", "--group", topic)
    rows = [line.split() for line in groups.splitlines() if line.startswith(topic)]
    assert sum(int(row[3]) for row in rows) == 300
    assert all(row[5] == "0" for row in rows)
    assert topic in tool(kafka_cluster, proxy, "kafka-consumer-groups", "--list")
    settings = tool(
        kafka_cluster, proxy, "kafka-configs",
        *("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
    )  # fmt: skip
    assert "log.retention" in settings
