"""Consumer groups with Kafka's own command line tools, and with them its Java consumer."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from confluent_kafka import Consumer, Producer

from rookery.testing.tools import ToolHost
from rookery.testing.wait import wait_until
from tests.clients.javatools import Tool
from tests.clients.peers import BOTH, new_topic

pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("bootstrap", BOTH, indirect=True)]

COUNT = 60
PROTOCOLS = ("classic", "consumer")
_numbers = count(1)


@pytest.fixture
def tool(tools: ToolHost, bootstrap: str) -> Tool:
    return Tool(tools, bootstrap)


@pytest.fixture
def group() -> str:
    """A group that no other test has."""
    return f"group-{next(_numbers)}"


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of one partition with numbers."""
    name = new_topic(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce(name, str(number))
    assert producer.flush(30) == 0
    return name


@contextmanager
def member(bootstrap: str, topic: str, group: str, protocol: str) -> Iterator[Consumer]:
    """A member that has all of the topic."""
    settings = {"group.protocol": protocol, "client.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    consumer.subscribe([topic])

    def has_it() -> bool:
        consumer.poll(0.05)
        return bool(consumer.assignment())

    try:
        wait_until(has_it)
        yield consumer
    finally:
        consumer.close()


def offsets(tool: Tool, group: str) -> dict[int, tuple[str, str]]:
    """Return the committed offset and the lag of each partition."""
    rows = tool.rows("kafka-consumer-groups", "--describe", "--group", group)
    return {int(row["PARTITION"]): (row["CURRENT-OFFSET"], row["LAG"]) for row in rows}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_group_resumes_at_its_committed_offset(
    tool: Tool, topic: str, group: str, protocol: str
) -> None:
    name = ("--group", group, "--command-property", f"group.protocol={protocol}")

    first = tool.read(topic, 40, *name)
    assert offsets(tool, group) == {0: ("40", "20")}
    second = tool.read(topic, COUNT - 40, *name)

    assert first + second == [str(number) for number in range(COUNT)]
    types = {row["GROUP"]: row["TYPE"] for row in tool.rows("kafka-groups", "--list")}
    assert types[group] == protocol.title()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_groups_describes_members(
    tool: Tool, bootstrap: str, topic: str, group: str, protocol: str
) -> None:
    describe = ("kafka-consumer-groups", "--describe", "--group", group)

    with member(bootstrap, topic, group, protocol):
        (state,) = tool.rows(*describe, "--state")
        (group_member,) = tool.rows(*describe, "--members")
        (place,) = tool.rows(*describe)
        listed = tool.rows("kafka-consumer-groups", "--list", "--state", "stable")

    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    assert (group_member["CLIENT-ID"], group_member["#PARTITIONS"]) == ("reader", "1")
    assert (place["TOPIC"], place["PARTITION"], place["CLIENT-ID"]) == (topic, "0", "reader")
    assert {"GROUP": group, "STATE": "Stable"} in listed


def test_group_with_members_is_neither_reset_nor_deleted(
    tool: Tool, bootstrap: str, topic: str, group: str
) -> None:
    tool.read(topic, 10, "--group", group)
    groups, name = "kafka-consumer-groups", ("--group", group)

    with member(bootstrap, topic, group, "classic"):
        reset = tool.refused(
            groups, "--reset-offsets", "--to-earliest", "--topic", topic, *name, "--execute"
        )
        forget = tool.refused(groups, "--delete-offsets", "--topic", topic, *name)
        delete = tool.refused(groups, "--delete", *name)

    assert "only be reset if the group" in reset
    assert "GroupSubscribedToTopicException" in forget
    assert "GroupNotEmptyException" in delete
    assert offsets(tool, group) == {0: ("10", str(COUNT - 10))}


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), COUNT),
        (("--to-offset", "17"), 17),
        (("--shift-by", "-5"), 35),
        (("--to-datetime", "2000-01-01T00:00:00.000"), 0),
    ],
)
def test_consumer_groups_resets(
    tool: Tool, topic: str, group: str, option: tuple[str, ...], expected: int
) -> None:
    tool.read(topic, 40, "--group", group)
    reset = ("kafka-consumer-groups", "--reset-offsets", *option, "--topic", topic)

    (planned,) = tool.rows(*reset, "--group", group, "--dry-run")
    before = offsets(tool, group)
    tool(*reset, "--group", group, "--execute")

    assert planned["NEW-OFFSET"] == str(expected)
    assert before == {0: ("40", "20")}
    assert offsets(tool, group) == {0: (str(expected), str(COUNT - expected))}


def test_a_reset_group_reads_again(tool: Tool, topic: str, group: str) -> None:
    tool.read(topic, COUNT, "--group", group)

    to_ten = ("--reset-offsets", "--to-offset", "10", "--topic", topic, "--execute")
    tool("kafka-consumer-groups", "--group", group, *to_ten)

    assert tool.read(topic, COUNT - 10, "--group", group)[0] == "10"


def test_consumer_groups_deletes(tool: Tool, topic: str, group: str) -> None:
    groups, name = "kafka-consumer-groups", ("--group", group)
    tool.read(topic, COUNT, *name)

    tool(groups, "--delete-offsets", "--topic", topic, *name)
    assert offsets(tool, group) == {}
    tool(groups, "--delete", *name)

    assert group not in tool(groups, "--list").split()
    assert "GroupIdNotFoundException" in tool.refused(groups, "--describe", *name)


def test_consumer_perf_test(tool: Tool, topic: str, group: str) -> None:
    options = ("--num-records", str(COUNT), "--timeout", "30000", "--hide-header")

    said = tool("kafka-consumer-perf-test", "--topic", topic, "--group", group, *options)

    assert int(said.split(",")[4]) == COUNT


def test_end_to_end_latency(tool: Tool, bootstrap: str) -> None:
    options = ("--num-records", "50", "--producer-acks", "all", "--record-size", "20")

    said = tool("kafka-e2e-latency", "--topic", new_topic(bootstrap), *options)

    assert re.search(r"Percentiles: 50th = \d+", said)


def test_verifiable_producer(tool: Tool, bootstrap: str) -> None:
    topic, most = new_topic(bootstrap, 3), ("--max-messages", str(COUNT))

    events = _events(tool("kafka-verifiable-producer", "--topic", topic, *most))

    acks = [event for event in events if event["name"] == "producer_send_success"]
    assert events[-1]["name"] == "tool_data"
    assert (events[-1]["sent"], events[-1]["acked"]) == (COUNT, COUNT)
    assert {ack["value"] for ack in acks} == {str(number) for number in range(COUNT)}
    ends = tool("kafka-get-offsets", "--topic", topic).split()
    assert sum(int(line.rpartition(":")[2]) for line in ends) == COUNT


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_verifiable_consumer(tool: Tool, topic: str, group: str, protocol: str) -> None:
    options = ("--max-messages", str(COUNT), "--group-protocol", protocol, "--verbose")

    events = _events(
        tool("kafka-verifiable-consumer", "--topic", topic, "--group-id", group, *options)
    )

    records = [event for event in events if event["name"] == "record_data"]
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert [record["value"] for record in records] == [str(number) for number in range(COUNT)]
    assert all(commit["success"] for commit in commits)
    assert commits[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": COUNT}]
    assert offsets(tool, group) == {0: (str(COUNT), "0")}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_java_consumer_joins_a_group_with_a_member_of_the_other_protocol(
    tool: Tool, bootstrap: str, group: str, protocol: str
) -> None:
    [other] = [name for name in PROTOCOLS if name != protocol]
    topic = new_topic(bootstrap, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2 * COUNT):
        producer.produce(topic, str(number // 2), partition=number % 2)
    assert producer.flush(30) == 0
    options = ("--max-messages", str(COUNT), "--group-protocol", protocol, "--verbose")

    with member(bootstrap, topic, group, other) as consumer, polled(consumer) as sizes:
        said = tool("kafka-verifiable-consumer", "--topic", topic, "--group-id", group, *options)
        # The member learns of it by a heartbeat, about every five seconds.
        wait_until(lambda: sizes[-1], "both partitions", accepts=lambda size: size == 2)
        types = {row["GROUP"]: row["TYPE"] for row in tool.rows("kafka-groups", "--list")}

    events = _events(said)
    records = [event for event in events if event["name"] == "record_data"]
    assert [record["value"] for record in records] == [str(number) for number in range(COUNT)]
    assert len({record["partition"] for record in records}) == 1
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert types[group] == other.title(), "the last one of a protocol takes it along"


@contextmanager
def polled(consumer: Consumer) -> Iterator[list[int]]:
    """Have a consumer do its part in the background; say how many partitions it had each time."""
    is_over = threading.Event()
    sizes = [0]

    def poll() -> None:
        while not is_over.is_set():
            consumer.poll(0.05)
            sizes.append(len(consumer.assignment()))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield sizes
    finally:
        is_over.set()
        thread.join()


def _events(said: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in said.splitlines()]
