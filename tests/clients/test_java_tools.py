"""Kafka's own command line tools, and with them its Java clients, against Rookery."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rookery.testing.java import Java
from tests.clients.peers import CODECS, new_topic, stored_codecs

pytestmark = pytest.mark.kafka


@pytest.fixture
def tool(java: Java, bootstrap: str) -> Tool:
    return Tool(java, bootstrap)


class Tool:
    """Runs tools against one broker; each must end well."""

    def __init__(self, java: Java, bootstrap: str) -> None:
        self._java = java
        self._bootstrap = bootstrap

    def __call__(self, name: str, *args: str, text: str | None = None) -> str:
        done = self._java.tool(
            name, "--bootstrap-server", self._bootstrap, *args, text=text, timeout=90
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_and_consumer(tool: Tool, bootstrap: str, codec: str) -> None:
    topic = new_topic(bootstrap)
    lines = [f"key {number % 7}:value {number}" for number in range(200)]

    tool(
        "kafka-console-producer",
        *("--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        text="\n".join(lines) + "\n",
    )
    got = tool(
        "kafka-console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", "0", "--max-messages", "200"),
        *("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"),
        *("--timeout-ms", "30000"),
    )

    assert got.splitlines() == lines
    assert stored_codecs(bootstrap, topic) == {codec}


def test_kafka_topics_tool(tool: Tool) -> None:
    # Three replicas on one broker: durability is the store's, so any factor is taken.
    tool("kafka-topics", *("--create", "--topic", "java-topic", "--partitions", "2"),
         *("--replication-factor", "3", "--config", "retention.ms=60000"))  # fmt: skip
    tool("kafka-topics", "--alter", "--topic", "java-topic", "--partitions", "5")

    described = tool("kafka-topics", "--describe", "--topic", "java-topic")
    assert "PartitionCount: 5" in described
    assert "retention.ms=60000" in described
    assert "java-topic" in tool("kafka-topics", "--list").split()
    tool("kafka-topics", "--delete", "--topic", "java-topic")
    assert "java-topic" not in tool("kafka-topics", "--list").split()


def test_kafka_configs_tool(tool: Tool, bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    entity = ("--entity-type", "topics", "--entity-name", topic)

    tool("kafka-configs", "--alter", *entity, "--add-config", "retention.ms=12345")
    assert "retention.ms=12345" in tool("kafka-configs", "--describe", *entity)
    tool("kafka-configs", "--alter", *entity, "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("kafka-configs", "--describe", *entity)
    every = tool("kafka-configs", "--describe", "--all", *entity)
    assert "cleanup.policy=delete" in every
    brokers = tool("kafka-configs", "--describe", "--all", "--entity-type", "brokers")
    assert "num.partitions=1" in brokers


def test_offsets_and_deleted_records(tool: Tool, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap)
    tool("kafka-console-producer", "--topic", topic, text="one\ntwo\nthree\n")
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]})
    )

    def offset(time: str) -> str:
        return tool("kafka-get-offsets", "--topic", topic, "--time", time).strip()

    assert offset("earliest") == f"{topic}:0:0"
    assert offset("latest") == f"{topic}:0:3"
    assert offset("max-timestamp") in {f"{topic}:0:{number}" for number in range(3)}
    done = tool("kafka-delete-records", "--offset-json-file", str(plan))
    assert re.search(rf"{topic}-0\s+low_watermark: 2", done)
    assert offset("earliest") == f"{topic}:0:2"


def test_kafka_log_dirs_tool(tool: Tool, bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    tool("kafka-console-producer", "--topic", topic, text="one\n" * 100)

    said = tool("kafka-log-dirs", "--describe", "--topic-list", topic)

    (line,) = [line for line in said.splitlines() if line.startswith("{")]
    (broker,) = json.loads(line)["brokers"]
    rows = {
        row["partition"]: row["size"]
        for folder in broker["logDirs"]
        for row in folder["partitions"]
    }
    assert set(rows) == {f"{topic}-0", f"{topic}-1"}
    assert sum(rows.values()) > 0


def test_client_metrics(tool: Tool) -> None:
    tool(
        "kafka-client-metrics", "--alter", "--name", "producers",
        *("--metrics", "org.apache.kafka.producer.", "--interval", "30000"),
        *("--match", "client_id=orders"),
    )  # fmt: skip

    assert tool("kafka-client-metrics", "--list").split() == ["producers"]
    described = tool("kafka-client-metrics", "--describe", "--name", "producers")
    assert "interval.ms=30000" in described
    assert "match=client_id=orders" in described

    tool("kafka-client-metrics", "--delete", "--name", "producers")
    assert tool("kafka-client-metrics", "--list").split() == []


def test_performance_tools(bootstrap: str, java: Java) -> None:
    topic = new_topic(bootstrap, partitions=3)

    produced = java.tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}"),
    )

    assert produced.returncode == 0, produced.stderr
    assert "5000 records sent" in produced.stdout


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("kafka-broker-api-versions", (), "Produce(0): 0 to"),
        ("kafka-cluster", ("cluster-id",), "Cluster ID"),
        ("kafka-metadata-quorum", ("describe", "--status"), "LeaderId"),
        ("kafka-features", ("describe",), "rookery.version"),
    ],
)
def test_tools_describe_the_cluster(
    java: Java, bootstrap: str, name: str, args: tuple[str, ...], words: str
) -> None:
    server = ("--bootstrap-server", bootstrap)
    order = (*args, *server) if name == "kafka-cluster" else (*server, *args)

    done = java.tool(name, *order)

    assert done.returncode == 0, done.stderr
    assert words in done.stdout
