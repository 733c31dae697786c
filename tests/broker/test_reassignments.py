"""Reassignments: none is ever in progress, and none can begin."""

from __future__ import annotations

import json
from pathlib import Path

from rookery.broker.settings import BrokerSettings
from rookery.errors import ErrorCode
from rookery.testing.java import Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from rookery.wire.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest

TOPIC = "reassigned"


def create(bootstrap: str) -> None:
    topic = CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    ask(bootstrap, CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=20_000))


def reassign(
    bootstrap: str, *targets: tuple[str, int, list[int] | None]
) -> AlterPartitionReassignmentsResponse:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=index, replicas=replicas)],
        )
        for name, index, replicas in targets
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    return ask(bootstrap, ALTER_PARTITION_REASSIGNMENTS, 1, request)


def test_reassignment_answers_match_kafka(tmp_path: Path, kafka: KafkaServer) -> None:
    with ServedBroker(tmp_path, BrokerSettings(durability="os")) as broker:
        for server in (broker, kafka):
            create(server.bootstrap)

        def is_known() -> bool:
            [answer] = reassign(kafka.bootstrap, (TOPIC, 0, [1])).responses
            return answer.partitions[0].error_code is ErrorCode.NONE

        wait_until(is_known)
        targets: list[tuple[str, int, list[int] | None]] = [
            (name, index, replicas)
            for name, index in ((TOPIC, 0), (TOPIC, 7), ("nothing", 0))
            for replicas in (None, [1])
        ]
        ours, theirs = (reassign(server.bootstrap, *targets) for server in (broker, kafka))
        assert ours == theirs

        ours, theirs = (
            reassign(server.bootstrap, *((TOPIC, 0, some) for some in ([2], [1, 2], [], [1, 1])))
            for server in (broker, kafka)
        )

    codes = [response.partitions[0].error_code for response in ours.responses]
    assert codes == [response.partitions[0].error_code for response in theirs.responses]
    assert codes == [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 4
    assert "not stored on brokers" in (ours.responses[0].partitions[0].error_message or "")


def test_kafka_tool_verifies_and_cancels_reassignments(
    tmp_path: Path, broker: ServedBroker, java: Java
) -> None:
    create(broker.bootstrap)
    plan = tmp_path / "plan.json"
    part = {"topic": TOPIC, "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))

    for action, expected in (
        ("--verify", f"Reassignment of partition {TOPIC}-0 is completed."),
        ("--cancel", "None of the specified partition reassignments are active."),
    ):
        done = java.tool(
            "kafka-reassign-partitions", "--bootstrap-server", broker.bootstrap,
            action, "--reassignment-json-file", str(plan),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in done.stdout
