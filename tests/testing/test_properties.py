"""The properties files of the test kit's Kafka."""

from __future__ import annotations

from pathlib import Path

from rookery.testing.ports import free_port
from rookery.testing.properties import ClusterPlan, KafkaSettings, write


def test_values_are_written_as_java_reads_them(tmp_path: Path) -> None:
    write(tmp_path / "p", {"a": " b\\c", "d": "ü€😀", "e": "x=y:z"})

    text = (tmp_path / "p").read_text("ascii")

    assert text == "a=\\u0020b\\\\c\nd=\\u00fc\\u20ac\\ud83d\\ude00\ne=x=y:z\n"


def test_given_properties_take_precedence(tmp_path: Path) -> None:
    plan = ClusterPlan.make(tmp_path, 1, KafkaSettings(properties={"num.partitions": "1"}))

    assert plan.properties(plan.nodes[0])["num.partitions"] == "1"


def test_nodes_of_a_cluster_share_only_the_voters(tmp_path: Path) -> None:
    plan = ClusterPlan.make(tmp_path, 3, KafkaSettings())

    told = [plan.properties(node) for node in plan.nodes]

    for key in ("node.id", "log.dirs", "listeners", "advertised.listeners"):
        assert len({each[key] for each in told}) == 3
    assert len({each["controller.quorum.bootstrap.servers"] for each in told}) == 1
    assert told[0]["offsets.topic.replication.factor"] == "3"


def test_port_is_given_out_once() -> None:
    ports = [free_port() for _ in range(100)]

    assert len(set(ports)) == 100
