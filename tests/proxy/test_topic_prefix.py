"""Virtual clusters with prefixes share an upstream without seeing each other's topics."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ConfigError, ErrorCode
from rookery.proxy.filterload import filter_types, load_filters
from rookery.proxy.filters.topic_prefix import TopicPrefix
from rookery.proxy.settings import FilterSettings, VirtualClusterSettings
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest


@pytest.fixture(scope="module")
def prefix() -> str:
    return f"{uuid4().hex[:8]}."


@pytest.fixture(scope="module")
def prefixed(server: str, prefix: str) -> Iterator[str]:
    with ServedProxy(server, filters=[TopicPrefix({"prefix": prefix})]) as proxy:
        yield proxy.bootstrap


def topics_at(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics)


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)


def test_clients_see_their_own_topics_without_the_prefix(
    server: str, prefixed: str, prefix: str
) -> None:
    create(server, f"foreign-{prefix}")
    create(prefixed, "orders")

    wait_until(lambda: f"{prefix}orders" in topics_at(server))
    assert topics_at(prefixed) == {"orders"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_records_and_groups_pass(server: str, prefixed: str, protocol: str) -> None:
    topic = f"events-{protocol}"
    create(prefixed, topic)
    producer = Producer({"bootstrap.servers": prefixed, "enable.idempotence": True})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(20) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": prefixed,
            "group.id": f"{topic}-{uuid4().hex}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    values: list[bytes | None] = []

    def has_all() -> bool:
        messages = consumer.consume(100, timeout=1.0)
        assert {message.topic() for message in messages if not message.error()} <= {topic}
        values.extend(message.value() for message in messages if not message.error())
        return len(values) == 100

    try:
        consumer.subscribe([topic])
        wait_until(has_all)
        consumer.commit(asynchronous=False)
        committed = consumer.committed(consumer.assignment(), 20)
        # A partition that has got no record has no offset.
        assert sum(each.offset for each in committed if each.offset != OFFSET_INVALID) == 100
    finally:
        consumer.close()


def join_by_pattern(bootstrap: str, pattern: str) -> ErrorCode:
    """Join a group as a member that subscribes to a regular expression."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=f"g-{uuid4().hex}",
        member_id=str(uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[],
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    codes: list[ErrorCode] = []

    def is_answered() -> bool:
        # Apache Kafka has no coordinators before someone looks for one.
        found = FindCoordinatorRequest(coordinator_keys=[request.group_id])
        ask(bootstrap, FIND_COORDINATOR, 4, found)
        code = ask(bootstrap, CONSUMER_GROUP_HEARTBEAT, 1, request).error_code
        codes.append(code)
        return not code.retriable

    wait_until(is_answered)
    return codes[-1]


@pytest.mark.parametrize("pattern", ["x)|(?:.*", "x)|(.*", "(", "a\\", "[a"])
def test_pattern_cannot_leave_the_prefix(server: str, prefixed: str, pattern: str) -> None:
    """A pattern that is one only within the prefix could match the topics of other tenants."""
    create(server, f"foreign-{uuid4().hex}")

    assert join_by_pattern(prefixed, pattern) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert join_by_pattern(prefixed, "orders|events.*") is ErrorCode.NONE


def test_filters_are_found_by_their_names() -> None:
    definitions = {"tenant": FilterSettings("topic_prefix", {"prefix": "a."})}

    [loaded] = load_filters(VirtualClusterSettings(filters=("tenant",)), definitions)

    assert isinstance(loaded, TopicPrefix)
    assert "topic_prefix" in filter_types()


@pytest.mark.parametrize(
    ("name", "definition", "message"),
    [
        ("nothing", None, "there is no filter 'nothing'; known: .*topic_prefix"),
        ("topic_prefix", None, "set the option prefix"),
        ("t", FilterSettings("topic_prefix", {"prefx": "a"}), "no option 'prefx'; it has: prefix"),
    ],
)
def test_invalid_filters_are_refused(
    name: str, definition: FilterSettings | None, message: str
) -> None:
    definitions = {name: definition} if definition is not None else {}

    with pytest.raises(ConfigError, match=message):
        load_filters(VirtualClusterSettings(filters=(name,)), definitions)
