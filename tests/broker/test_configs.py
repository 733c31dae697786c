"""Settings of topics and brokers: described and changed as in Kafka."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType

from rookery.broker.config import configs
from rookery.broker.config.configkeys import BROKER_KEYS, TOPIC_KEYS
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.settings import ConsumerSettings
from rookery.broker.settings import BrokerSettings
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.testing.java import Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
)
from rookery.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from rookery.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest,
)
from rookery.wire.messages.incremental_alter_configs import AlterableConfig as Change
from rookery.wire.messages.incremental_alter_configs import AlterConfigsResource as Changes
from rookery.wire.messages.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequest,
)
from tests.broker.conftest import Start
from tests.kafkapython import KafkaAdminClient

TOPIC, BROKER, GROUP = 2, 4, 32
OUR_OWN = "rookery."
SET, DELETE, APPEND, SUBTRACT = range(4)
_numbers = count()


@pytest.fixture
def name() -> str:
    """A topic name that no other test has, on a Kafka that all tests share."""
    return f"configs-{next(_numbers)}"


def create(bootstrap: str, name: str) -> None:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    [made] = ask(bootstrap, CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic])).topics
    assert made.error_code is ErrorCode.NONE


def describe(
    bootstrap: str, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    [result] = ask(bootstrap, DESCRIBE_CONFIGS, version, request).results
    return result


def values(bootstrap: str, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    return {config.name: config for config in describe(bootstrap, kind, name).configs}


def change(
    bootstrap: str,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    resource = Changes(
        resource_type=kind,
        resource_name=name,
        configs=[Change(name=key, config_operation=what, value=to) for key, what, to in changes],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [result] = ask(bootstrap, INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return result.error_code, result.error_message


def replace(
    bootstrap: str, kind: int, name: str, *, version: int = 2, **settings: str | None
) -> ErrorCode:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ],
    )
    request = AlterConfigsRequest(resources=[resource])
    [result] = ask(bootstrap, ALTER_CONFIGS, version, request).responses
    return result.error_code


def in_force(bootstrap: str, name: str, key: str) -> tuple[str | None, int] | None:
    entry = values(bootstrap, TOPIC, name).get(key)
    return None if entry is None else (entry.value, entry.config_source)


def has(bootstrap: str, name: str, key: str, shown: tuple[str | None, int] | None) -> bool:
    return in_force(bootstrap, name, key) == shown


# Describing.


@pytest.mark.parametrize("keys", [None, []])
def test_missing_or_empty_list_of_keys_describes_all_configs(
    broker: ServedBroker, kafka: KafkaServer, name: str, keys: list[str] | None
) -> None:
    for server in (broker, kafka):
        create(server.bootstrap, name)

    ours, theirs = (
        {entry.name for entry in described(server.bootstrap, name, keys)}
        for server in (broker, kafka)
    )

    assert ours == {*theirs, "rookery.validate.compressed"}


def described(
    bootstrap: str, name: str, keys: list[str] | None
) -> list[DescribeConfigsResourceResult]:
    """Describe a topic that Kafka's broker may not know yet."""

    def is_known() -> bool:
        return describe(bootstrap, TOPIC, name).error_code is ErrorCode.NONE

    wait_until(is_known)
    return describe(bootstrap, TOPIC, name, keys).configs


def test_per_broker_throttle_can_only_be_removed(broker: ServedBroker) -> None:
    key, delete, put = "leader.replication.throttled.rate", 1, 0

    assert change(broker.bootstrap, BROKER, "1", (key, delete, None)) == (ErrorCode.NONE, None)
    for resource, what, value in (("1", put, "5"), ("77", delete, None)):
        code, text = change(broker.bootstrap, BROKER, resource, (key, what, value))
        assert code is ErrorCode.INVALID_CONFIG
        assert "apply to all brokers" in (text or "")


def test_concurrent_changes_of_a_list_are_all_applied(start: Start) -> None:
    brokers = [start(), start()]
    create(brokers[0].bootstrap, "t")
    parts = [f"{index}:1" for index in range(12)]
    key, append, subtract = "leader.replication.throttled.replicas", 2, 3

    def changed(what: int) -> list[str]:
        with ThreadPoolExecutor(len(parts)) as threads:
            done = threads.map(
                lambda index: change(
                    brokers[index % 2].bootstrap, TOPIC, "t", (key, what, parts[index])
                ),
                range(len(parts)),
            )
            assert set(done) == {(ErrorCode.NONE, None)}
        value = values(brokers[0].bootstrap, TOPIC, "t")[key].value or ""
        return sorted(filter(None, value.split(",")))

    assert changed(append) == sorted(parts)
    assert changed(subtract) == []


def test_store_url_is_shown_without_its_options() -> None:
    settings = BrokerSettings(store="s3://bucket/prefix?secret=x")
    assert configs.facts(settings, 1, "host:1")["log.dirs"] == "s3://bucket/prefix"


def test_a_topic_is_described_as_kafka_does(
    broker: ServedBroker, kafka: KafkaServer, name: str
) -> None:
    tables = []
    for server in (broker, kafka):
        create(server.bootstrap, name)
        change(server.bootstrap, TOPIC, name, ("retention.ms", SET, "5"))
        wait_until(partial(has, server.bootstrap, name, "retention.ms", ("5", 1)))
        tables.append(
            {
                config.name: (
                    config.value,
                    config.config_source,
                    config.read_only,
                    config.is_sensitive,
                    config.config_type,
                    [(each.name, each.value, each.source) for each in config.synonyms],
                )
                for config in describe(server.bootstrap, TOPIC, name).configs
                if not config.name.startswith(OUR_OWN)
            }
        )

    ours, theirs = tables
    # Kafka's own set-up writes this one down for all brokers; a fresh cluster of ours does not.
    assert ours.pop("min.insync.replicas")[0] == theirs.pop("min.insync.replicas")[0]
    assert ours == theirs


def test_every_broker_config_has_the_name_and_type_of_kafka(
    broker: ServedBroker, kafka: KafkaServer
) -> None:
    ours = values(broker.bootstrap, BROKER, str(broker.node_id))
    theirs = values(kafka.bootstrap, BROKER, "1")
    shared = [name for name in ours if not name.startswith(OUR_OWN)]

    assert {name: ours[name].config_type for name in shared} == {
        name: theirs[name].config_type for name in shared
    }
    assert ours["node.id"].value == str(broker.node_id)
    assert ours["listeners"].value == f"PLAINTEXT://{broker.bootstrap}"
    assert ours["log.dirs"].value == broker.settings.data
    assert ours["num.partitions"].read_only
    assert not ours["log.retention.bytes"].read_only
    assert all(entry.documentation for entry in ours.values())


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_the_requested_keys(broker: ServedBroker, version: int) -> None:
    create(broker.bootstrap, "t")

    result = describe(broker.bootstrap, TOPIC, "t", ["retention.ms", "no.such"], version=version)

    assert [(config.name, config.value, config.config_source) for config in result.configs] == [
        ("retention.ms", "604800000", 5)
    ]
    if version >= 3:
        assert result.configs[0].documentation


@pytest.mark.parametrize(
    ("kind", "resource"),
    [(TOPIC, "missing"), (TOPIC, "a/b"), (TOPIC, ""), (BROKER, "99"), (BROKER, "x"), (3, "x")],
)
def test_undescribable_resource_has_the_code_of_kafka(
    broker: ServedBroker, kafka: KafkaServer, kind: int, resource: str
) -> None:
    ours = describe(broker.bootstrap, kind, resource)

    theirs = describe(kafka.bootstrap, kind, resource)
    assert ours.error_code is theirs.error_code
    assert ours.error_code is not ErrorCode.NONE
    assert ours.error_message
    assert ours.configs == []


# Changing.

VERDICTS = [
    ("retention.ms", SET, "-1"),
    ("retention.ms", SET, "-2"),
    ("retention.ms", SET, " 12 "),
    ("retention.ms", SET, "1_000"),
    ("retention.ms", SET, ""),
    ("retention.ms", SET, None),
    ("retention.ms", DELETE, None),
    ("retention.ms", DELETE, "7"),
    ("retention.ms", APPEND, "7"),
    ("retention.bytes", SET, "-5"),
    ("retention.bytes", SET, "9223372036854775808"),
    ("no.such", SET, "1"),
    ("max.message.bytes", SET, "-1"),
    ("max.message.bytes", SET, "2147483648"),
    ("segment.bytes", SET, "1048575"),
    ("segment.ms", SET, "0"),
    ("cleanup.policy", APPEND, "compact"),
    ("cleanup.policy", APPEND, "delete"),
    ("cleanup.policy", APPEND, "burn"),
    ("cleanup.policy", SUBTRACT, "compact"),
    ("cleanup.policy", SUBTRACT, "delete"),
    ("cleanup.policy", SET, ""),
    ("cleanup.policy", SET, "delete,delete"),
    ("cleanup.policy", SET, " delete , compact "),
    ("cleanup.policy", SET, "Delete"),
    ("compression.type", SET, "uncompressed"),
    ("compression.type", SET, "none"),
    ("compression.gzip.level", SET, "0"),
    ("compression.gzip.level", SET, "-1"),
    ("compression.gzip.level", SET, "9"),
    ("compression.lz4.level", SET, "18"),
    ("compression.zstd.level", SET, "23"),
    ("message.timestamp.type", SET, "LogAppendTime"),
    ("message.timestamp.type", SET, "logappendtime"),
    ("message.timestamp.before.max.ms", SET, "-1"),
    ("message.timestamp.after.max.ms", SET, "0"),
    ("min.cleanable.dirty.ratio", SET, "1.1"),
    ("min.cleanable.dirty.ratio", SET, "0.25"),
    ("min.cleanable.dirty.ratio", SET, "half"),
    ("min.insync.replicas", SET, "2"),
    ("unclean.leader.election.enable", SET, "yes"),
    ("unclean.leader.election.enable", SET, "True"),
    ("preallocate", SET, "1"),
    ("follower.replication.throttled.replicas", SET, "*"),
    ("follower.replication.throttled.replicas", SET, "0:1,1:2"),
    ("follower.replication.throttled.replicas", SET, "0-1"),
    ("leader.replication.throttled.replicas", APPEND, "0:1"),
    ("segment.index.bytes", SET, "3"),
    ("index.interval.bytes", SET, "-1"),
    ("flush.messages", SET, "0"),
    ("flush.ms", SET, "-1"),
    ("file.delete.delay.ms", SET, "-1"),
    ("delete.retention.ms", SET, "-1"),
    ("max.compaction.lag.ms", SET, "0"),
    ("min.compaction.lag.ms", SET, "-1"),
    ("segment.jitter.ms", SET, "-1"),
    ("local.retention.ms", SET, "-3"),
    ("remote.storage.enable", SET, "true"),
]


@pytest.mark.parametrize(("key", "what", "to"), VERDICTS)
def test_config_changes_and_results_match_kafka(
    broker: ServedBroker, kafka: KafkaServer, name: str, key: str, what: int, to: str | None
) -> None:
    codes = []
    for server in (broker, kafka):
        create(server.bootstrap, name)
        code, text = change(server.bootstrap, TOPIC, name, (key, what, to))
        assert code is ErrorCode.NONE or text
        codes.append(code)

    assert codes[0] is codes[1]
    shown = in_force(broker.bootstrap, name, key)
    # Kafka's brokers learn later of what its controller has decided.
    wait_until(partial(has, kafka.bootstrap, name, key, shown))


def test_unknown_operation_is_refused(broker: ServedBroker) -> None:
    create(broker.bootstrap, "t")

    code, _ = change(broker.bootstrap, TOPIC, "t", ("retention.ms", 9, "7"))

    # A real Kafka's controller steps down over this one.
    assert code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "changes",
    [
        [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        [("retention.ms", SET, "1"), ("no.such", SET, "2")],
        [("min.compaction.lag.ms", SET, "2"), ("max.compaction.lag.ms", SET, "1")],
    ],
)
def test_changes_of_a_resource_are_atomic(
    broker: ServedBroker, kafka: KafkaServer, name: str, changes: list[tuple[str, int, str]]
) -> None:
    codes = []
    for server in (broker, kafka):
        create(server.bootstrap, name)
        codes.append(change(server.bootstrap, TOPIC, name, *changes)[0])

    assert codes[0] is codes[1]
    assert codes[0] is not ErrorCode.NONE
    assert {value.config_source for value in values(broker.bootstrap, TOPIC, name).values()} == {5}


def test_validate_only_changes_nothing(broker: ServedBroker) -> None:
    create(broker.bootstrap, "t")

    code, _ = change(broker.bootstrap, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True)
    bad, text = change(broker.bootstrap, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)

    assert code is ErrorCode.NONE
    assert (bad, "retention.ms" in (text or "")) == (ErrorCode.INVALID_CONFIG, True)
    assert values(broker.bootstrap, TOPIC, "t")["retention.ms"].config_source == 5


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_configs(broker: ServedBroker, version: int) -> None:
    create(broker.bootstrap, "t")
    change(broker.bootstrap, TOPIC, "t", ("retention.ms", SET, "1"), ("flush.ms", SET, "2"))

    code = replace(broker.bootstrap, TOPIC, "t", version=version, flush_ms="3")

    assert code is ErrorCode.NONE
    after = values(broker.bootstrap, TOPIC, "t")
    assert (after["flush.ms"].value, after["flush.ms"].config_source) == ("3", 1)
    assert after["retention.ms"].config_source == 5
    assert replace(broker.bootstrap, TOPIC, "t", flush_ms=None) is ErrorCode.INVALID_REQUEST
    assert replace(broker.bootstrap, TOPIC, "u") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_resource_named_twice_is_refused_as_kafka_does(
    broker: ServedBroker, kafka: KafkaServer, name: str
) -> None:
    resource = Changes(
        resource_type=TOPIC,
        resource_name=name,
        configs=[Change(name="flush.ms", config_operation=SET, value="1")],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource, resource])
    for server in (broker, kafka):
        create(server.bootstrap, name)
        answer = ask(server.bootstrap, INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert {response.error_code for response in answer.responses} == {ErrorCode.INVALID_REQUEST}


def test_size_of_configs_is_bounded(broker: ServedBroker) -> None:
    create(broker.bootstrap, "t")
    long = ",".join(f"{index}:1" for index in range(4000))

    code, text = change(
        broker.bootstrap, TOPIC, "t", ("leader.replication.throttled.replicas", SET, long)
    )

    assert code is ErrorCode.INVALID_CONFIG
    assert "16384" in (text or "")


# Brokers.


def test_cluster_wide_broker_config_is_inherited(start: Start) -> None:
    first, second = start(), start()
    create(first.bootstrap, "t")
    create(first.bootstrap, "own")
    change(first.bootstrap, TOPIC, "own", ("max.message.bytes", SET, "5000"))

    code, _ = change(first.bootstrap, BROKER, "", ("message.max.bytes", SET, "3000"))

    assert code is ErrorCode.NONE
    entry = values(second.bootstrap, TOPIC, "t")["max.message.bytes"]
    assert (entry.value, entry.config_source) == ("3000", 3)
    assert [each.name for each in entry.synonyms] == ["message.max.bytes"] * 2
    assert values(second.bootstrap, TOPIC, "own")["max.message.bytes"].value == "5000"
    whole = values(second.bootstrap, BROKER, str(second.node_id))["message.max.bytes"]
    assert (whole.value, whole.config_source) == ("3000", 3)
    assert {n: c.value for n, c in values(second.bootstrap, BROKER, "").items()} == {
        "message.max.bytes": "3000"
    }
    state = second.broker.replica.state
    rules = second.broker.services.rules
    assert rules.of(state, state.topics.by_name["t"]).max_bytes == 3000
    assert rules.of(state, state.topics.by_name["own"]).max_bytes == 5000

    change(second.bootstrap, BROKER, "", ("message.max.bytes", DELETE, None))

    assert values(first.bootstrap, TOPIC, "t")["max.message.bytes"].config_source == 5


@pytest.mark.parametrize(
    ("resource", "key", "says"),
    [
        ("", "num.partitions", "cannot be changed"),
        ("", "log.message.timestamp.type", "cannot be changed"),
        ("", "no.such", "Unknown broker config"),
        ("1", "log.retention.ms", "--entity-default"),
    ],
)
def test_read_only_broker_config_is_refused_with_a_reason(
    broker: ServedBroker, resource: str, key: str, says: str
) -> None:
    code, text = change(broker.bootstrap, BROKER, resource, (key, SET, "1"))

    assert code is ErrorCode.INVALID_CONFIG
    assert says in (text or "")


@pytest.mark.parametrize("kind", [0, 8, 16, 99])
def test_other_resources_have_no_configs(broker: ServedBroker, kind: int) -> None:
    code, text = change(broker.bootstrap, kind, "x", ("a", SET, "1"))

    assert code is ErrorCode.INVALID_REQUEST
    assert text


# Groups.


@pytest.mark.parametrize(
    ("key", "what", "to"),
    [
        ("consumer.session.timeout.ms", SET, "46000"),
        ("consumer.session.timeout.ms", SET, " 46000 "),
        ("consumer.session.timeout.ms", SET, "1"),
        ("consumer.session.timeout.ms", SET, "-1"),
        ("consumer.session.timeout.ms", SET, None),
        ("consumer.session.timeout.ms", DELETE, None),
        ("consumer.heartbeat.interval.ms", SET, "6000"),
        ("consumer.heartbeat.interval.ms", SET, "45000"),
        ("consumer.heartbeat.interval.ms", SET, "50000"),
        ("consumer.heartbeat.interval.ms", SET, "soon"),
        ("consumer.heartbeat.interval.ms", APPEND, "6000"),
        ("no.such", SET, "1"),
    ],
)
def test_group_config_changes_match_kafka(
    broker: ServedBroker, kafka: KafkaServer, name: str, key: str, what: int, to: str | None
) -> None:
    codes = [
        change(server.bootstrap, GROUP, name, (key, what, to))[0] for server in (broker, kafka)
    ]

    assert codes[0] is codes[1]
    if codes[0] is ErrorCode.NONE and what == SET:
        ours = values(broker.bootstrap, GROUP, name)[key]

        def theirs() -> DescribeConfigsResourceResult:
            return values(kafka.bootstrap, GROUP, name)[key]

        # Kafka's brokers learn later of what its controller has decided.
        wait_until(lambda: theirs().config_source == ours.config_source == 8)
        assert (ours.value, ours.config_type) == (theirs().value, theirs().config_type)
        assert ours.synonyms[0] == theirs().synonyms[0]


def test_group_without_configs_has_those_of_the_broker(
    start: Start, kafka: KafkaServer, name: str
) -> None:
    broker = start(consumer_groups=ConsumerSettings(heartbeat_interval_ms=1_000))

    ours, theirs = (values(server.bootstrap, GROUP, name) for server in (broker, kafka))

    assert set(ours) <= set(theirs)
    for key, entry in ours.items():
        assert entry.synonyms[-1] == theirs[key].synonyms[-1]
        assert entry.config_type == theirs[key].config_type
        assert entry.documentation
    heartbeat = ours["consumer.heartbeat.interval.ms"]
    assert (heartbeat.value, heartbeat.config_source) == ("1000", 4)


def test_configs_of_a_group_without_a_name_are_refused_as_kafka_does(
    broker: ServedBroker, kafka: KafkaServer
) -> None:
    for server in (broker, kafka):
        described = describe(server.bootstrap, GROUP, "")
        code, _ = change(server.bootstrap, GROUP, "", ("consumer.session.timeout.ms", SET, "46000"))
        assert code is described.error_code is ErrorCode.INVALID_REQUEST


def test_groups_with_configs_are_listed(broker: ServedBroker) -> None:
    for name in ("b", "a", "c"):
        change(broker.bootstrap, GROUP, name, ("consumer.session.timeout.ms", SET, "46000"))
    change(broker.bootstrap, GROUP, "c", ("consumer.session.timeout.ms", DELETE, None))

    answer = ask(
        broker.bootstrap, LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=[32])
    )

    assert [resource.resource_name for resource in answer.config_resources] == ["a", "b"]


def test_group_uses_its_own_configs(broker: ServedBroker) -> None:
    def beat(group: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
        is_joining = epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if is_joining else -1,
            subscribed_topic_names=["t"] if is_joining else None,
            topic_partitions=[] if is_joining else None,
        )
        return ask(broker.bootstrap, CONSUMER_GROUP_HEARTBEAT, 1, request)

    first = {group: beat(group, 0) for group in ("own", "other")}
    assert {answer.heartbeat_interval_ms for answer in first.values()} == {5_000}
    change(
        broker.bootstrap,
        GROUP,
        "own",
        ("consumer.heartbeat.interval.ms", SET, "7000"),
        ("consumer.session.timeout.ms", SET, "600000"),
    )

    again = {group: beat(group, answer.member_epoch) for group, answer in first.items()}

    assert again["own"].heartbeat_interval_ms == 7_000
    assert again["other"].heartbeat_interval_ms == 5_000
    sessions = []
    for group in ("own", "other"):
        machine = broker.broker.groups.machine(broker.broker.replica.state.groups.by_id[group])
        assert isinstance(machine, ConsumerGroupMachine)
        sessions.append(machine.group.settings.session_timeout_ms)
    assert sessions == [600_000, 45_000]


# ListConfigResources.


@pytest.mark.parametrize(
    ("version", "types", "expected"),
    [
        (0, [], []),
        (1, [], [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1")]),
        (1, [TOPIC], [(TOPIC, "a"), (TOPIC, "b")]),
        (1, [BROKER], [(BROKER, "1")]),
        (1, [32], []),
    ],
)
def test_config_resources_are_listed(
    broker: ServedBroker, version: int, types: list[int], expected: list[tuple[int, str]]
) -> None:
    create(broker.bootstrap, "b")
    create(broker.bootstrap, "a")
    request = ListConfigResourcesRequest(resource_types=types)

    answer = ask(broker.bootstrap, LIST_CONFIG_RESOURCES, version, request)

    assert [(o.resource_type, o.resource_name) for o in answer.config_resources] == expected


def test_unknown_resource_type_is_refused_as_kafka_does(
    broker: ServedBroker, kafka: KafkaServer
) -> None:
    request = ListConfigResourcesRequest(resource_types=[99])

    ours = ask(broker.bootstrap, LIST_CONFIG_RESOURCES, 1, request)

    assert ours.error_code is ask(kafka.bootstrap, LIST_CONFIG_RESOURCES, 1, request).error_code


# Real clients.


def test_confluent_kafka_changes_configs(broker: ServedBroker) -> None:
    create(broker.bootstrap, "t")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = [
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("segment.ms", "7", incremental_operation=AlterConfigOpType.SET),
    ]
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=entries)

    for future in admin.incremental_alter_configs([resource]).values():
        future.result()

    [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values()
    after = described.result()
    assert after["cleanup.policy"].value == "delete,compact"
    assert after["segment.ms"].value == "7"
    assert not after["segment.ms"].is_default


def test_kafka_python_describes_configs(broker: ServedBroker) -> None:
    create(broker.bootstrap, "t")
    change(broker.bootstrap, TOPIC, "t", ("retention.ms", SET, "5"))
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        described = admin.describe_configs([PythonResource(ConfigResourceType.TOPIC, "t")])
    finally:
        admin.close()

    assert "retention.ms" in str(described)


def test_kafka_configs_tool_works(broker: ServedBroker, java: Java) -> None:
    def run(*args: str) -> tuple[int, str]:
        done = java.tool("kafka-configs", "--bootstrap-server", broker.bootstrap, *args)
        return done.returncode, done.stdout + done.stderr

    create(broker.bootstrap, "t")

    assert run("--alter", "--topic", "t", "--add-config", "cleanup.policy=[compact,delete]")[0] == 0
    status, text = run("--describe", "--topic", "t")
    assert (status, "cleanup.policy=compact,delete" in text) == (0, True)
    status, text = run("--alter", "--topic", "t", "--add-config", "segment.bytes=2")
    assert (status, "at least 1048576" in text) == (1, True)
    everywhere = ("--entity-type", "brokers", "--entity-default")
    assert run("--alter", *everywhere, "--add-config", "log.retention.ms=777")[0] == 0
    status, text = run("--describe", "--topic", "t", "--all")
    assert "retention.ms=777 " in text
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=777" in text
    assert run("--alter", "--topic", "t", "--delete-config", "cleanup.policy")[0] == 0
    assert "cleanup.policy" not in run("--describe", "--topic", "t")[1]


def test_kafka_configs_tool_changes_a_group(broker: ServedBroker, java: Java) -> None:
    def run(*args: str) -> tuple[int, str]:
        entity = ("--entity-type", "groups", "--entity-name", "g")
        done = java.tool("kafka-configs", "--bootstrap-server", broker.bootstrap, *entity, *args)
        return done.returncode, done.stdout + done.stderr

    assert run("--alter", "--add-config", "consumer.session.timeout.ms=60000")[0] == 0
    status, text = run("--describe")
    assert (status, "consumer.session.timeout.ms=60000" in text) == (0, True)
    status, text = run("--alter", "--add-config", "consumer.session.timeout.ms=10")
    assert (status, "must be greater than" in text) == (1, True)
    assert run("--alter", "--delete-config", "consumer.session.timeout.ms")[0] == 0


# The table itself.


def test_every_default_passes_its_own_check() -> None:
    assert configs.check_topic({key.name: key.default for key in TOPIC_KEYS.values()})


def test_effective_config_follows_the_topic_config() -> None:
    state = State()
    topic = Topic(b"i" * 16, "t", 1)
    state.topics.add(topic)
    before = configs.resolve(state, topic)
    assert (before.retention_ms, before.is_deleted, before.is_compacted) == (604800000, True, False)
    assert before.compression_level is None

    topic.configure("cleanup.policy", "compact")
    topic.configure("compression.type", "zstd")

    after = configs.resolve(state, topic)
    assert (after.is_deleted, after.is_compacted) == (False, True)
    assert (after.compression_type, after.compression_level) == ("zstd", 3)


def test_synonyms_name_broker_configs() -> None:
    assert {key.synonym for key in TOPIC_KEYS.values()} - {""} <= set(BROKER_KEYS)


def test_broker_configs_are_checked_like_topic_configs() -> None:
    with pytest.raises(ApiError, match=r"log\.roll\.ms"):
        configs.check_brokers({"log.roll.ms": "0"})
