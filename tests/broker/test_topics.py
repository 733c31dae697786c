"""Topics are described, created, deleted and given partitions as in Kafka."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from confluent_kafka.error import KafkaException
from kafka.admin import NewTopic as PythonTopic

from rookery.broker.operations import ON_CLUSTER, ON_TOPIC
from rookery.broker.topics import check_name
from rookery.cluster.events.topicevents import TopicCreated
from rookery.errors import ApiError, ErrorCode
from rookery.model.topicname import RESERVED_TOPICS
from rookery.testing.cluster import FaultyLog
from rookery.testing.java import Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from rookery.wire.messages.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from rookery.wire.messages.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from rookery.wire.messages.produce import PRODUCE
from tests.broker.conftest import Start
from tests.broker.raw import batch, produce_request
from tests.kafkapython import KafkaAdminClient

_numbers = count()


@pytest.fixture
def name() -> str:
    """A topic name that no other test has, on a Kafka that all tests share."""
    return f"topics-{next(_numbers)}"


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    *,
    assignments: list[tuple[int, list[int]]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in assignments or []
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


def create(
    bootstrap: str, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return ask(bootstrap, CREATE_TOPICS, version, request).topics


def metadata(
    bootstrap: str,
    *names: str,
    version: int = 13,
    ids: tuple[bytes, ...] = (),
    auto_create: bool = False,
) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto_create)
    return ask(bootstrap, METADATA, version, request)


def topic_of(bootstrap: str, name: str) -> MetadataResponseTopic:
    [described] = metadata(bootstrap, name).topics
    return described


def create_and_see(bootstrap: str, *topics: CreatableTopic) -> None:
    """Create topics, and return when they are to be seen."""
    create(bootstrap, *topics)
    names = [wanted.name for wanted in topics]
    wait_until(
        lambda: {row.error_code for row in metadata(bootstrap, *names).topics} == {ErrorCode.NONE}
    )


# Metadata.


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata_describes_a_topic(broker: ServedBroker, version: int) -> None:
    create(broker.bootstrap, topic("t", 3, 1))

    answer = metadata(broker.bootstrap, "t", version=version)

    [described] = answer.topics
    assert (described.name, described.error_code) == ("t", ErrorCode.NONE)
    assert [p.partition_index for p in described.partitions] == [0, 1, 2]
    assert {p.leader_id for p in described.partitions} == {broker.node_id}
    assert [(b.node_id, b.port) for b in answer.brokers] == [(broker.node_id, broker.port)]
    if version >= 2:
        assert answer.cluster_id
    if version >= 10:
        assert described.topic_id != ZERO_UUID


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (12, None)])
def test_all_topics_are_described(
    broker: ServedBroker, version: int, topics: list[MetadataRequestTopic] | None
) -> None:
    create(broker.bootstrap, topic("a"), topic("b"))

    answer = ask(broker.bootstrap, METADATA, version, MetadataRequest(topics=topics))

    assert sorted(row.name or "" for row in answer.topics) == ["a", "b"]


def test_empty_list_describes_no_topic(broker: ServedBroker) -> None:
    create(broker.bootstrap, topic("a"))

    assert metadata(broker.bootstrap, version=1).topics == []


def test_topics_are_described_by_id(broker: ServedBroker) -> None:
    [made] = create(broker.bootstrap, topic("t"))

    known, unknown = metadata(broker.bootstrap, ids=(made.topic_id, b"x" * 16)).topics

    assert (known.name, known.error_code) == ("t", ErrorCode.NONE)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert unknown.topic_id == b"x" * 16


def test_ids_before_version_12_are_refused_as_kafka_does(
    broker: ServedBroker, kafka: KafkaServer
) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=b"x" * 16)])

    ours = ask(broker.bootstrap, METADATA, 10, request)

    assert [row.error_code for row in ours.topics] == [ErrorCode.INVALID_REQUEST]
    theirs = ask(kafka.bootstrap, METADATA, 10, request)
    assert [row.error_code for row in theirs.topics] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "ä", "x" * 250, "a b", "a\x00"])
def test_invalid_names_have_the_codes_of_kafka(
    broker: ServedBroker, kafka: KafkaServer, bad: str
) -> None:
    [ours] = metadata(broker.bootstrap, bad, auto_create=True).topics

    [theirs] = metadata(kafka.bootstrap, bad, auto_create=True).topics
    assert ours.error_code is theirs.error_code
    assert not list(broker.broker.replica.state.topics)


def test_operations_are_those_of_kafka(broker: ServedBroker, kafka: KafkaServer) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="operations")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    for server in (broker, kafka):
        create_and_see(server.bootstrap, topic("operations"))

    ours = ask(broker.bootstrap, METADATA, 10, request)
    theirs = ask(kafka.bootstrap, METADATA, 10, request)

    assert ours.cluster_authorized_operations == theirs.cluster_authorized_operations == ON_CLUSTER
    assert [row.topic_authorized_operations for row in ours.topics] == [ON_TOPIC]
    assert [row.topic_authorized_operations for row in theirs.topics] == [ON_TOPIC]
    assert topic_of(broker.bootstrap, "operations").topic_authorized_operations == -(2**31)


def test_first_metadata_answer_for_a_new_topic_is_usable(start: Start) -> None:
    broker = start(partitions=3)

    [described] = metadata(broker.bootstrap, "new", auto_create=True).topics

    assert described.error_code is ErrorCode.NONE
    assert [p.leader_id for p in described.partitions] == [broker.node_id] * 3


@pytest.mark.parametrize(
    ("setting", "version", "flag", "is_made"),
    [
        (True, 4, True, True),
        (True, 4, False, False),
        (False, 4, True, False),
        (True, 3, True, True),
    ],
)
def test_topic_is_created_automatically_if_broker_and_client_allow_it(
    start: Start, setting: bool, version: int, flag: bool, is_made: bool
) -> None:
    broker = start(auto_create_topics=setting)

    [described] = metadata(broker.bootstrap, "new", version=version, auto_create=flag).topics

    expected = ErrorCode.NONE if is_made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described.error_code is expected
    assert ("new" in broker.broker.replica.state.topics.by_name) is is_made


def test_many_unknown_names_make_a_bounded_number_of_topics(broker: ServedBroker) -> None:
    names = [f"unknown-{index}" for index in range(3000)]

    answer = metadata(broker.bootstrap, *names, auto_create=True)

    made = [row for row in answer.topics if row.error_code is ErrorCode.NONE]
    assert len(made) == 1000
    assert {row.error_code for row in answer.topics} == {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_cached_description_follows_the_topic_and_the_brokers(start: Start) -> None:
    first = start()
    create(first.bootstrap, topic("t", 1, 2))
    assert [p.replica_nodes for p in topic_of(first.bootstrap, "t").partitions] == [[1, 1]]

    second = start()
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=8)], timeout_ms=1000
    )
    ask(second.bootstrap, CREATE_PARTITIONS, 3, request)

    partitions = topic_of(second.bootstrap, "t").partitions
    assert len(partitions) == 8
    assert all(sorted(p.replica_nodes) == [1, 2] for p in partitions)
    assert all(p.replica_nodes[0] == p.leader_id for p in partitions)
    assert {p.leader_id for p in partitions} == {1, 2}


def test_topic_created_by_another_broker_is_known_immediately(start: Start) -> None:
    first, second = start(auto_create_topics=False), start(auto_create_topics=False)

    for index in range(20):
        create(first.bootstrap, topic(f"t{index}"))
        assert topic_of(second.bootstrap, f"t{index}").error_code is ErrorCode.NONE


# CreateTopics.


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_topics(broker: ServedBroker, version: int) -> None:
    [made] = create(
        broker.bootstrap, topic("t", 2, 3, configs={"retention.ms": "5"}), version=version
    )

    assert made.error_code is ErrorCode.NONE
    described = topic_of(broker.bootstrap, "t")
    assert len(described.partitions) == 2
    assert [len(p.replica_nodes) for p in described.partitions] == [3, 3]
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 3)
        sources = {config.name: config.config_source for config in made.configs or []}
        assert (sources["retention.ms"], sources["retention.bytes"]) == (1, 5)
    if version >= 7:
        assert made.topic_id == described.topic_id


REFUSALS = {
    "no partitions": topic("t", 0),
    "negative partitions": topic("t", -2),
    "no replicas": topic("t", 1, 0),
    "negative replicas": topic("t", 1, -2),
    "bad name": topic("a/b"),
    "long name": topic("x" * 250),
    "empty name": topic(""),
    "dots": topic(".."),
    "unknown setting": topic("t", configs={"no.such": "1"}),
    "bad number": topic("t", configs={"retention.ms": "soon"}),
    "out of bounds": topic("t", configs={"segment.bytes": "1"}),
    "null setting": topic("t", configs={"retention.ms": None}),
    "bad word": topic("t", configs={"compression.type": "rar"}),
    "bad list": topic("t", configs={"cleanup.policy": "delete,burn"}),
    "lags cross": topic("t", configs={"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}),
    "assigned and counted": topic("t", 1, -1, assignments=[(0, [1])]),
    "assigned with a gap": topic("t", -1, -1, assignments=[(0, [1]), (2, [1])]),
    "assigned twice": topic("t", -1, -1, assignments=[(0, [1]), (0, [1])]),
    "assigned to no broker": topic("t", -1, -1, assignments=[(0, [])]),
    "same broker twice": topic("t", -1, -1, assignments=[(0, [1, 1])]),
    "unknown broker": topic("t", -1, -1, assignments=[(0, [99])]),
    "fine": topic("t", -1, -1),
    "fine by hand": topic("t", -1, -1, assignments=[(1, [1]), (0, [1])]),
    "fine settings": topic(
        "t", configs={"cleanup.policy": "compact, delete", "preallocate": "TRUE"}
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_creation_results_match_kafka(broker: ServedBroker, kafka: KafkaServer, case: str) -> None:
    [ours] = create(broker.bootstrap, REFUSALS[case], validate_only=True)

    [theirs] = create(kafka.bootstrap, REFUSALS[case], validate_only=True)
    assert (ours.name, ours.error_code) == (theirs.name, theirs.error_code)
    assert bool(ours.error_message) == (ours.error_code is not ErrorCode.NONE)
    assert not list(broker.broker.replica.state.topics)


def test_returned_configs_match_kafka(broker: ServedBroker, kafka: KafkaServer) -> None:
    wanted = topic("t", 2, 1, configs={"retention.ms": "77", "cleanup.policy": "compact"})
    [ours] = create(broker.bootstrap, wanted, validate_only=True)
    [theirs] = create(kafka.bootstrap, wanted, validate_only=True)

    # The id that the topic would have had.
    assert ZERO_UUID not in (ours.topic_id, theirs.topic_id)
    assert (ours.num_partitions, ours.replication_factor) == (2, 1)
    assert (theirs.num_partitions, theirs.replication_factor) == (2, 1)
    shown = {config.name: config.value for config in ours.configs or []}
    assert shown.pop("rookery.validate.compressed") == "false"  # Kafka has no such setting
    assert shown == {config.name: config.value for config in theirs.configs or []}


def test_topic_named_twice_in_one_request_is_not_created(
    broker: ServedBroker, kafka: KafkaServer, name: str
) -> None:
    for server in (broker, kafka):
        results = create(server.bootstrap, topic(name), topic(name), topic(f"{name}-other"))
        codes = {result.name: result.error_code for result in results}
        assert codes == {name: ErrorCode.INVALID_REQUEST, f"{name}-other": ErrorCode.NONE}
    assert topic_of(broker.bootstrap, name).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_existing_topic_is_not_created_again(broker: ServedBroker) -> None:
    create(broker.bootstrap, topic("t"))

    [again] = create(broker.bootstrap, topic("t", 5))

    assert again.error_code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "'t'" in (again.error_message or "")
    assert len(topic_of(broker.bootstrap, "t").partitions) == 1


def test_colliding_names_are_refused_as_kafka_does(
    broker: ServedBroker, kafka: KafkaServer, name: str
) -> None:
    for server in (broker, kafka):
        create(server.bootstrap, topic(f"{name}.a_b"))
        [collides] = create(server.bootstrap, topic(f"{name}_a.b"))
        assert collides.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_colliding_names_in_one_request_are_refused(broker: ServedBroker) -> None:
    results = create(broker.bootstrap, topic("a.b"), topic("a_b"), topic("a-b"))

    assert [result.error_code for result in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]
    [asked] = metadata(broker.bootstrap, "a_b", auto_create=True).topics
    assert asked.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    request = DeleteTopicsRequest(topic_names=["a.b"], timeout_ms=1000)
    ask(broker.bootstrap, DELETE_TOPICS, 5, request)
    [free] = create(broker.bootstrap, topic("a_b"))
    assert free.error_code is ErrorCode.NONE


def test_too_many_partitions_are_refused(broker: ServedBroker) -> None:
    results = create(broker.bootstrap, topic("a", 6000), topic("b", 6000))

    assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
    assert not list(broker.broker.replica.state.topics)


def test_request_with_more_topics_than_an_entry_holds_is_split(broker: ServedBroker) -> None:
    long = ",".join(f"{index}:1" for index in range(2000))
    configs: dict[str, str | None] = {"leader.replication.throttled.replicas": long}
    topics = [topic(f"t{index}", configs=configs) for index in range(100)]

    results = create(broker.bootstrap, *topics)

    assert {result.error_code for result in results} == {ErrorCode.NONE}
    assert len(list(broker.broker.replica.state.topics)) == 100


def test_concurrent_creators_create_one_topic(start: Start) -> None:
    servers = [start(), start()]
    names: list[str] = []
    for index in range(10):
        names.append(f"t{index}")
        with ThreadPoolExecutor(2) as pool:
            both = pool.map(
                lambda at: create(at, topic(names[-1])), [server.bootstrap for server in servers]
            )
            answers = [answer for [answer] in both]
        codes = sorted(answer.error_code for answer in answers)
        assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        [made] = [answer for answer in answers if answer.error_code is ErrorCode.NONE]
        assert {topic_of(server.bootstrap, names[-1]).topic_id for server in servers} == {
            made.topic_id
        }


def test_creation_that_exceeds_its_timeout_is_reported_as_timed_out(broker: ServedBroker) -> None:
    log = broker.do(_wrap(broker))
    broker.do(_call(log.hold))

    request = CreateTopicsRequest(topics=[topic("t")], timeout_ms=50)
    [late] = ask(broker.bootstrap, CREATE_TOPICS, 7, request).topics

    assert late.error_code is ErrorCode.REQUEST_TIMED_OUT
    broker.do(_call(log.let_through))
    # It was proposed, and so it happens; what comes after it sees that.
    [again] = create(broker.bootstrap, topic("other"))
    assert again.error_code is ErrorCode.NONE
    assert topic_of(broker.bootstrap, "t").error_code is ErrorCode.NONE


def test_unreachable_cluster_log_is_not_reported_as_unknown_topic(broker: ServedBroker) -> None:
    create(broker.bootstrap, topic("t"))
    log = broker.do(_wrap(broker))
    broker.do(_call(log.cut))

    [known] = metadata(broker.bootstrap, "t").topics
    [unknown] = metadata(broker.bootstrap, "u").topics
    [made] = create(broker.bootstrap, topic("v"))

    assert known.error_code is ErrorCode.NONE
    assert unknown.error_code is made.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    broker.do(_call(log.mend))


async def _wrap(broker: ServedBroker) -> FaultyLog:
    """Put faults to order between the broker and its cluster log."""
    follower = broker.broker.replica._follower
    log = follower.log = FaultyLog(follower.log)
    return log


async def _call(function: Callable[[], None]) -> None:
    function()


# DeleteTopics.


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(broker: ServedBroker, version: int) -> None:
    create(broker.bootstrap, topic("t"))
    request = DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=1000)

    results = ask(broker.bootstrap, DELETE_TOPICS, version, request).responses

    assert {result.name: result.error_code for result in results} == {
        "t": ErrorCode.NONE,
        "u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert topic_of(broker.bootstrap, "t").error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_deleted_by_id(broker: ServedBroker, kafka: KafkaServer, name: str) -> None:
    for server in (broker, kafka):
        [created] = create(server.bootstrap, topic(name))
        create(server.bootstrap, topic(f"{name}-twice"))
        asked = [
            DeleteTopicState(topic_id=created.topic_id),
            DeleteTopicState(topic_id=b"y" * 16),
            DeleteTopicState(name=f"{name}-twice"),
            DeleteTopicState(name=f"{name}-twice"),
        ]
        request = DeleteTopicsRequest(topics=asked, timeout_ms=10_000)
        results = ask(server.bootstrap, DELETE_TOPICS, 6, request).responses
        codes = {(each.name, each.error_code) for each in results}
        assert codes == {
            (name, ErrorCode.NONE),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
            (f"{name}-twice", ErrorCode.INVALID_REQUEST),
        }


def test_recreated_topic_has_a_new_id(broker: ServedBroker) -> None:
    [before] = create(broker.bootstrap, topic("t", 3))
    ask(broker.bootstrap, DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000))

    [after] = create(broker.bootstrap, topic("t", 1))

    assert after.error_code is ErrorCode.NONE
    assert after.topic_id != before.topic_id
    assert len(topic_of(broker.bootstrap, "t").partitions) == 1


# CreatePartitions.


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(
    ("amount", "assigned"),
    [
        (4, None),
        (1, None),
        (2, None),
        (0, None),
        (4, [[1], [1]]),
        (4, [[1]]),
        (3, [[9]]),
        (3, [[1, 1]]),
    ],
)
def test_adding_partitions_matches_kafka(
    broker: ServedBroker,
    kafka: KafkaServer,
    name: str,
    version: int,
    amount: int,
    assigned: list[list[int]] | None,
) -> None:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned or []]
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=amount, assignments=assignments or None),
            CreatePartitionsTopic(name=f"{name}-missing", count=2),
        ],
        timeout_ms=10_000,
    )
    outcomes = []
    for server in (broker, kafka):
        create(server.bootstrap, topic(name, 2))
        answer = ask(server.bootstrap, CREATE_PARTITIONS, version, request)
        outcomes.append({result.name: result.error_code for result in answer.results})

    assert outcomes[0] == outcomes[1]
    grown = outcomes[0][name] is ErrorCode.NONE
    assert len(topic_of(broker.bootstrap, name).partitions) == (amount if grown else 2)


def test_validate_only_adds_no_partitions(broker: ServedBroker) -> None:
    create(broker.bootstrap, topic("t", 2))
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=9)], timeout_ms=1000, validate_only=True
    )

    [result] = ask(broker.bootstrap, CREATE_PARTITIONS, 3, request).results

    assert result.error_code is ErrorCode.NONE
    assert len(topic_of(broker.bootstrap, "t").partitions) == 2


# DescribeTopicPartitions.


def pages(bootstrap: str, limit: int, *names: str) -> Iterator[DescribeTopicPartitionsResponse]:
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        page = ask(bootstrap, DESCRIBE_TOPIC_PARTITIONS, 0, request)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


def seen(page: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int, list[int]]]:
    return [
        (row.name, row.error_code, [p.partition_index for p in row.partitions])
        for row in page.topics
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 100])
def test_pages_of_descriptions_match_kafka(
    broker: ServedBroker, kafka: KafkaServer, name: str, limit: int
) -> None:
    names = [f"{name}-b", f"{name}-a", f"{name}-none", f"{name}-c"]
    for server in (broker, kafka):
        create_and_see(server.bootstrap, topic(names[0], 3), topic(names[1], 1), topic(names[3], 2))

    ours = [seen(page) for page in pages(broker.bootstrap, limit, *names)]

    assert ours == [seen(page) for page in pages(kafka.bootstrap, limit, *names)]


def test_all_topics_are_described_page_by_page(broker: ServedBroker) -> None:
    create(broker.bootstrap, topic("b", 3), topic("a", 2500))

    first, second = pages(broker.bootstrap, 100_000)

    assert [(name, len(indexes)) for name, _, indexes in seen(first)] == [("a", 2000)]
    assert [(name, len(indexes)) for name, _, indexes in seen(second)] == [("a", 500), ("b", 3)]


# Real clients.


def test_confluent_kafka_administers_topics(broker: ServedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    admin.create_topics([NewTopic("t", 2, 3, config={"retention.ms": "1000"})])["t"].result()
    admin.create_partitions([NewPartitions("t", 5)])["t"].result()

    described = admin.list_topics("t").topics["t"]
    assert sorted(described.partitions) == [0, 1, 2, 3, 4]
    assert described.partitions[0].replicas == [1, 1, 1]
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic("t", 2, 3)])["t"].result()
    admin.delete_topics(["t"])["t"].result()
    assert "t" not in admin.list_topics().topics


def test_kafka_python_administers_topics(broker: ServedBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics([PythonTopic("t", 2, 1)])
        assert admin.list_topics() == ["t"]
        admin.delete_topics(["t"])
        assert admin.list_topics() == []
    finally:
        admin.close()


def test_kafka_topics_tool_prints_the_same_for_both(
    broker: ServedBroker, kafka: KafkaServer, java: Java, name: str
) -> None:
    def run(server: ServedBroker | KafkaServer, *args: str) -> str:
        done = java.tool("kafka-topics", "--bootstrap-server", server.bootstrap, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    outputs = []
    for server in (broker, kafka):
        text = run(
            server, "--create", "--topic", name, "--partitions", "2", "--config", "flush.ms=9"
        )
        text += run(server, "--alter", "--topic", name, "--partitions", "3")
        described = run(server, "--describe", "--topic", name)
        head, *rows = described.splitlines()
        outputs.append((text, head.split("\t")[2:], [row.split("\t")[1:5] for row in rows]))

    assert outputs[0][0] == outputs[1][0]
    assert outputs[0][2] == outputs[1][2]
    assert outputs[0][1][:2] == outputs[1][1][:2]
    assert "flush.ms=9" in outputs[0][1][2]


def test_kafka_topics_tool_shows_the_requested_replication_factor(
    broker: ServedBroker, java: Java
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    java.tool("kafka-topics", *at, "--create", "--topic", "t", "--replication-factor", "3")

    described = java.tool("kafka-topics", *at, "--describe").stdout
    under = java.tool("kafka-topics", *at, "--describe", "--under-replicated-partitions")

    assert "ReplicationFactor: 3" in described
    assert "Replicas: 1,1,1\tIsr: 1,1,1" in described
    assert (under.returncode, under.stdout.strip()) == (0, "")


def test_changes_of_topics_are_logged(
    broker: ServedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    logger = "rookery.broker.decisions"
    caplog.set_level(logging.INFO, logger)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "me"})
    for name, more in (("t", NewPartitions("t", 5)), ("u", None)):
        admin.create_topics([NewTopic(name, 2)])[name].result(20)
        if more is not None:
            admin.create_partitions([more])[name].result(20)
    entry = ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)
    admin.delete_topics(["t"])["t"].result(20)
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("u", 1)])["u"].result(20)

    assert [record.getMessage() for record in caplog.records if record.name == logger] == [
        "topic 't' created with 2 partitions, by client 'me'",
        "topic 't' altered: it has 5 partitions, by client 'me'",
        "topic 'u' created with 2 partitions, by client 'me'",
        "topic 't' altered: retention.ms='5', by client 'me'",
        "topic 't' deleted, by client 'me'",
    ]


@pytest.mark.parametrize("name", sorted(RESERVED_TOPICS))
def test_internal_topic_names_of_kafka_are_reserved(broker: ServedBroker, name: str) -> None:
    [made] = create(broker.bootstrap, topic(name))

    assert made.error_code is ErrorCode.INVALID_REQUEST
    assert made.error_message == f"Creation of internal topic {name} is prohibited."
    [seen] = metadata(broker.bootstrap, name, auto_create=True).topics
    assert seen.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not list(broker.broker.replica.state.topics)


def test_kafka_refuses_to_create_its_metadata_topic(kafka: KafkaServer) -> None:
    [made] = create(kafka.bootstrap, topic("__cluster_metadata"))

    assert made.error_code is ErrorCode.INVALID_REQUEST
    assert made.error_message == "Creation of internal topic __cluster_metadata is prohibited."


@pytest.mark.parametrize("name", sorted(RESERVED_TOPICS))
def test_existing_topic_with_a_reserved_name_is_not_written(
    broker: ServedBroker, name: str
) -> None:
    async def propose() -> None:
        event = TopicCreated(
            topic_id=b"i" * 16, name=name, partitions=1, replication_factor=1, configs=[]
        )
        await broker.broker.replica.propose([event])

    broker.do(propose())
    request = produce_request(name, {0: batch(b"v")})
    [answer] = ask(broker.bootstrap, PRODUCE, 9, request).responses[0].partition_responses

    assert answer.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_at_the_length_limit_are_handled() -> None:
    check_name("x" * 249)
    check_name("__consumer_offsets")
    for bad in ("x" * 250, "", ".", "..", "a/../b", "%2e", "a\n", "\u0430"):
        with pytest.raises(ApiError):
            check_name(bad)
