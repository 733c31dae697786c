"""DescribeCluster, DescribeLogDirs and requests that are for controllers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from rookery.broker.operations import ON_CLUSTER
from rookery.cluster.events.brokerevents import BrokerLeft
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.errors import ErrorCode
from rookery.testing.backends import ServerBackend
from rookery.testing.java import Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from rookery.wire.messages.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
)
from rookery.wire.messages.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from rookery.wire.messages.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from rookery.wire.messages.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequest,
    TopicPartitions,
)
from rookery.wire.messages.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
)
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.broker.conftest import Start
from tests.kafkapython import KafkaAdminClient


def create(bootstrap: str, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    ask(bootstrap, CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))


def produce(bootstrap: str, topic: str, partition: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * size, partition=partition)
    assert producer.flush(10) == 0


# DescribeCluster.


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(start: Start, version: int) -> None:
    first, second = start(rack="a"), start(rack="b")
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)

    answers = [
        ask(server.bootstrap, DESCRIBE_CLUSTER, version, request) for server in (first, second)
    ]

    assert answers[0].cluster_id == answers[1].cluster_id != ""
    assert answers[0].cluster_authorized_operations == ON_CLUSTER
    for answer in answers:
        assert [(broker.broker_id, broker.port, broker.rack) for broker in answer.brokers] == [
            (1, first.port, "a"),
            (2, second.port, "b"),
        ]
        assert answer.controller_id == 1
    request = DescribeClusterRequest()
    answer = ask(first.bootstrap, DESCRIBE_CLUSTER, version, request)
    assert answer.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize("kind", [2, 3])
def test_controller_requests_are_refused_as_kafka_does(
    broker: ServedBroker, kafka: KafkaServer, kind: int
) -> None:
    request = DescribeClusterRequest(endpoint_type=kind)

    ours = ask(broker.bootstrap, DESCRIBE_CLUSTER, 1, request)

    theirs = ask(kafka.bootstrap, DESCRIBE_CLUSTER, 1, request)
    assert (ours.error_code, ours.endpoint_type) == (theirs.error_code, theirs.endpoint_type)
    assert ours.error_code is not ErrorCode.NONE


def test_a_broker_that_left_is_not_described(broker: ServedBroker) -> None:
    with ServedBroker(Path(broker.settings.data)):
        answer = ask(broker.bootstrap, DESCRIBE_CLUSTER, 2, DescribeClusterRequest())
        assert [member.broker_id for member in answer.brokers] == [1, 2]

    answer = ask(broker.bootstrap, DESCRIBE_CLUSTER, 2, DescribeClusterRequest())

    assert [member.broker_id for member in answer.brokers] == [1]


def test_last_broker_to_leave_still_reports_itself(broker: ServedBroker) -> None:
    # librdkafka forgets every address when it reads a list without brokers, and never asks again.
    async def leave() -> None:
        broker.broker.is_stopping = True
        await broker.broker.replica.propose([BrokerLeft()])

    broker.do(leave())
    assert not broker.broker.replica.state.brokers.by_node

    metadata = ask(broker.bootstrap, METADATA, 12, MetadataRequest(topics=[]))
    cluster = ask(broker.bootstrap, DESCRIBE_CLUSTER, 2, DescribeClusterRequest())
    quorum = ask(broker.bootstrap, DESCRIBE_QUORUM, 2, ask_for_quorum(("__cluster_metadata", 0)))

    assert [(member.node_id, member.port) for member in metadata.brokers] == [(1, broker.port)]
    assert [(member.broker_id, member.port) for member in cluster.brokers] == [(1, broker.port)]
    assert [node.node_id for node in quorum.nodes or ()] == [1]
    assert metadata.controller_id == cluster.controller_id == 1


# DescribeLogDirs.


def log_dir(bootstrap: str, request: DescribeLogDirsRequest, version: int) -> DescribeLogDirsResult:
    [result] = ask(bootstrap, DESCRIBE_LOG_DIRS, version, request).results
    return result


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dir_sizes_are_the_bytes_written(broker: ServedBroker, version: int) -> None:
    create(broker.bootstrap, "t", 2)
    produce(broker.bootstrap, "t", 1, 5000)

    result = log_dir(broker.bootstrap, DescribeLogDirsRequest(), version)

    assert result.log_dir == broker.settings.data
    [topic] = result.topics
    empty, full = topic.partitions
    assert (empty.partition_size, full.partition_index) == (0, 1)
    assert 5000 < full.partition_size < 5200
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes


def test_log_dir_in_a_store_reports_no_size(start: Start, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    broker = start(store=store)
    create(broker.bootstrap, "t", 1)

    result = log_dir(broker.bootstrap, DescribeLogDirsRequest(), 5)

    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, store)
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    assert [topic.name for topic in result.topics] == ["t"]


def test_log_dir_in_s3_needs_no_data_folder(
    backend: ServerBackend, start: Start, tmp_path: Path
) -> None:
    store = backend.store(tmp_path.name)
    broker = start(store=store)
    create(broker.bootstrap, "t", 1)

    result = log_dir(broker.bootstrap, DescribeLogDirsRequest(), 5)

    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, store.partition("?")[0])
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    assert [topic.name for topic in result.topics] == ["t"]
    assert not Path(broker.settings.data).exists()


def test_log_dirs_lists_only_requested_partitions_that_exist(broker: ServedBroker) -> None:
    create(broker.bootstrap, "t", 3)
    asked = [
        DescribableLogDirTopic(topic="t", partitions=[2, 9]),
        DescribableLogDirTopic(topic="missing", partitions=[0]),
    ]

    result = log_dir(broker.bootstrap, DescribeLogDirsRequest(topics=asked), 5)

    assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [
        ("t", [2])
    ]


def test_all_brokers_together_report_every_partition_once(start: Start) -> None:
    brokers = [start(), start()]
    create(brokers[0].bootstrap, "t", 20)

    shown = [
        partition.partition_index
        for broker in brokers
        for topic in log_dir(broker.bootstrap, DescribeLogDirsRequest(), 5).topics
        for partition in topic.partitions
    ]

    assert sorted(shown) == list(range(20))


# ElectLeaders, ListPartitionReassignments.


@pytest.mark.parametrize("version", range(3))
def test_election_is_not_needed(broker: ServedBroker, version: int) -> None:
    create(broker.bootstrap, "t", 2)
    asked = [
        TopicPartitions(topic="t", partitions=[0, 1, 2]),
        TopicPartitions(topic="u", partitions=[0]),
    ]

    answer = ask(
        broker.bootstrap, ELECT_LEADERS, version, ElectLeadersRequest(topic_partitions=asked)
    )

    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {
        (topic.topic, part.partition_id): part.error_code
        for topic in answer.replica_election_results
        for part in topic.partition_result
    } == {("t", 0): needless, ("t", 1): needless, ("t", 2): unknown, ("u", 0): unknown}


def test_election_of_all_partitions_matches_kafka(broker: ServedBroker, kafka: KafkaServer) -> None:
    for server in (broker, kafka):
        create(server.bootstrap, "elections", 2)
        answer = ask(server.bootstrap, ELECT_LEADERS, 2, ElectLeadersRequest())
        assert answer.error_code is ErrorCode.NONE
        results = {part.topic: part.partition_result for part in answer.replica_election_results}
        # Topics are named without the partitions that need no election.
        assert results["elections"] == []
        assert not any(results.values())


def test_unknown_election_type_is_refused(broker: ServedBroker) -> None:
    answer = ask(broker.bootstrap, ELECT_LEADERS, 2, ElectLeadersRequest(election_type=5))

    assert answer.error_code is ErrorCode.INVALID_REQUEST


def test_list_of_reassignments_is_empty(broker: ServedBroker) -> None:
    request = ListPartitionReassignmentsRequest()

    answer = ask(broker.bootstrap, LIST_PARTITION_REASSIGNMENTS, 0, request)

    assert (answer.error_code, answer.topics) == (ErrorCode.NONE, [])


# DescribeQuorum.


def ask_for_quorum(*partitions: tuple[str, int]) -> DescribeQuorumRequest:
    topics = [
        DescribeQuorumTopic(
            topic_name=name, partitions=[DescribeQuorumPartition(partition_index=index)]
        )
        for name, index in partitions
    ]
    return DescribeQuorumRequest(topics=topics)


@pytest.mark.parametrize("partitions", [[], [("__cluster_metadata", 1)], [("t", 0)]])
def test_quorum_has_no_nodes_without_its_partition(
    broker: ServedBroker, partitions: list[tuple[str, int]]
) -> None:
    answer = ask(broker.bootstrap, DESCRIBE_QUORUM, 2, ask_for_quorum(*partitions))

    assert answer.nodes == []


@pytest.mark.parametrize("version", range(3))
def test_quorum_description_reports_every_broker_at_the_end_of_the_log(
    start: Start, version: int
) -> None:
    brokers = [start(), start()]
    request = ask_for_quorum(("__cluster_metadata", 0), ("__cluster_metadata", 1), ("t", 0))

    answer = ask(brokers[1].bootstrap, DESCRIBE_QUORUM, version, request)

    known, *others = [topic.partitions[0] for topic in answer.topics]
    assert [voter.replica_id for voter in known.current_voters] == [1, 2]
    assert {voter.log_end_offset for voter in known.current_voters} == {known.high_watermark}
    assert known.high_watermark >= brokers[0].broker.replica.state.applied > 0
    assert {part.error_code for part in others} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if version >= 2:
        assert [node.listeners[0].port for node in answer.nodes] == [
            broker.port for broker in brokers
        ]


# UpdateFeatures.


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("feature", "level", "code"),
    [
        ("rookery.version", FEATURE_LEVEL, ErrorCode.NONE),
        ("rookery.version", FEATURE_LEVEL - 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("rookery.version", 0, ErrorCode.INVALID_UPDATE_VERSION),
        ("rookery.version", 9, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 20, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_only_changeable_features_can_be_updated(
    broker: ServedBroker, version: int, feature: str, level: int, code: ErrorCode
) -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=feature, max_version_level=level)]
    )

    answer = ask(broker.bootstrap, UPDATE_FEATURES, version, request)

    assert answer.error_code is code
    assert broker.broker.replica.state.feature_level == FEATURE_LEVEL


def test_unknown_features_are_refused_with_the_code_of_kafka(
    broker: ServedBroker, kafka: KafkaServer
) -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="no.such", max_version_level=1)]
    )

    ours = ask(broker.bootstrap, UPDATE_FEATURES, 2, request)

    assert ours.error_code is ask(kafka.bootstrap, UPDATE_FEATURES, 2, request).error_code


# Real clients.


def test_confluent_kafka_describes_the_cluster(start: Start) -> None:
    first, second = start(), start()
    admin = AdminClient({"bootstrap.servers": first.bootstrap})

    described = admin.describe_cluster().result()

    assert sorted((node.id, node.port) for node in described.nodes) == [
        (1, first.port),
        (2, second.port),
    ]


def test_kafka_python_describes_the_cluster(broker: ServedBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        described = admin.describe_cluster()
    finally:
        admin.close()

    assert str(broker.port) in str(described)


def test_kafkas_tools_describe_the_cluster(broker: ServedBroker, java: Java) -> None:
    def run(tool: str, *args: str) -> str:
        done = java.tool(tool, *args, "--bootstrap-server", broker.bootstrap)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    create(broker.bootstrap, "t", 2)
    produce(broker.bootstrap, "t", 0, 1000)

    cluster_id = broker.broker.replica.state.cluster_id
    assert cluster_id in run("kafka-cluster", "cluster-id")
    assert str(broker.port) in run("kafka-cluster", "list-endpoints")
    sizes = json.loads(run("kafka-log-dirs", "--describe").splitlines()[-1])
    [folder] = sizes["brokers"][0]["logDirs"]
    filled = {replica["partition"]: replica["size"] > 0 for replica in folder["partitions"]}
    assert filled == {"t-0": True, "t-1": False}
    election = ("kafka-leader-election", "--election-type", "preferred")
    assert "already elected" in run(*election, "--topic", "t", "--partition", "0")
    assert "No partition reassignments" in run("kafka-reassign-partitions", "--list")


def test_kafka_tools_describe_quorum_and_features(broker: ServedBroker, java: Java) -> None:
    at = ("--bootstrap-server", broker.bootstrap)

    status = java.tool("kafka-metadata-quorum", *at, "describe", "--status")
    features = java.tool("kafka-features", *at, "describe")
    upgrade = java.tool("kafka-features", *at, "upgrade", "--feature", "share.version=1")

    assert status.returncode == 0, status.stderr
    assert "MaxFollowerLag:         0" in status.stdout
    assert "rookery.version" in features.stdout
    assert "no such feature" in upgrade.stdout + upgrade.stderr
