"""Transactions with Kafka's own command line tools, and with them its Java clients."""

from __future__ import annotations

import json
from itertools import count

import pytest
from confluent_kafka import KafkaException, Producer

from rookery.testing.tools import ToolHost
from rookery.testing.wait import wait_until
from tests.clients.javatools import Row, Tool
from tests.clients.peers import BOTH, KINDS, new_topic

pytestmark = pytest.mark.kafka
everywhere = pytest.mark.parametrize("bootstrap", BOTH, indirect=True)

COUNT = 300
COMMITTED = ("--isolation-level", "read_committed")
ANYTHING = ("--isolation-level", "read_uncommitted")
_numbers = count(1)


@pytest.fixture
def tool(tools: ToolHost, bootstrap: str) -> Tool:
    return Tool(tools, bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap)


@pytest.fixture
def name() -> str:
    """A transactional id that no other test has."""
    return f"java-{next(_numbers)}"


@pytest.fixture
def producer(bootstrap: str, name: str) -> Producer:
    """A producer that may begin a transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    return producer


def write(producer: Producer, topic: str, *values: str) -> None:
    """Write in a new transaction, and leave it open."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def state(tool: Tool, name: str) -> Row:
    """Return what is known of a transactional id."""
    (row,) = tool.rows("kafka-transactions", "describe", "--transactional-id", name)
    return row


def wait_for_state(tool: Tool, name: str, expected: str) -> None:
    """Wait for the markers of a transaction that has ended: leaders write them afterwards."""
    wait_until(lambda: state(tool, name)["TransactionState"], accepts=expected.__eq__)


def end(tool: Tool, topic: str) -> int:
    """Return the end offset of a topic's only partition."""
    return int(tool("kafka-get-offsets", "--topic", topic).rpartition(":")[2])


@everywhere
def test_producer_perf_test_in_transactions(tool: Tool, topic: str, name: str) -> None:
    size = ("--num-records", str(COUNT), "--throughput", "1000", "--payload-monotonic")
    transaction = ("--transactional-id", name, "--transaction-duration-ms", "50")

    said = tool("kafka-producer-perf-test", "--topic", topic, *size, *transaction)

    assert f"{COUNT} records sent" in said
    assert end(tool, topic) >= COUNT + 2  # a marker for each of the transactions
    wait_for_state(tool, name, "CompleteCommit")
    assert tool.read(topic, COUNT, *COMMITTED) == [str(number) for number in range(COUNT)]


@everywhere
def test_readers_see_committed_records_only(tool: Tool, topic: str, producer: Producer) -> None:
    write(producer, topic, "one", "two")
    producer.commit_transaction()
    write(producer, topic, "three")
    producer.abort_transaction()
    write(producer, topic, "four")
    producer.commit_transaction()

    assert tool.read(topic, 3, *COMMITTED) == ["one", "two", "four"]
    assert tool.read(topic, 4, *ANYTHING) == ["one", "two", "three", "four"]


@everywhere
def test_readers_stop_before_an_open_transaction(
    tool: Tool, topic: str, bootstrap: str, producer: Producer
) -> None:
    other = Producer({"bootstrap.servers": bootstrap})
    other.produce(topic, "before")
    other.flush(30)
    write(producer, topic, "open")
    other.produce(topic, "behind")
    other.flush(30)

    partition = ("--topic", topic, "--partition", "0", "--offset", "earliest")
    seen = tool("kafka-console-consumer", *partition, *COMMITTED, "--timeout-ms", "5000")

    assert seen.split() == ["before"]
    assert tool.read(topic, 3, *ANYTHING) == ["before", "open", "behind"]
    producer.abort_transaction()
    assert tool.read(topic, 2, *COMMITTED) == ["before", "behind"]


@everywhere
def test_transactions_tool_describes(tool: Tool, topic: str, name: str, producer: Producer) -> None:
    write(producer, topic, "first")
    producer.commit_transaction()
    write(producer, topic, "second")

    (listed,) = [
        row for row in tool.rows("kafka-transactions", "list") if row["TransactionalId"] == name
    ]
    described = state(tool, name)
    place = ("--topic", topic, "--partition", "0")
    (writer,) = tool.rows("kafka-transactions", "describe-producers", *place)

    assert (listed["TransactionState"], described["TransactionState"]) == ("Ongoing", "Ongoing")
    assert described["TopicPartitions"] == f"{topic}-0"
    assert described["ProducerId"] == writer["ProducerId"] == listed["ProducerId"]
    assert described["ProducerEpoch"] == writer["ProducerEpoch"]
    assert writer["CurrentTransactionStartOffset"] == "2"  # after a record and a marker
    producer.abort_transaction()
    wait_for_state(tool, name, "CompleteAbort")
    (writer,) = tool.rows("kafka-transactions", "describe-producers", *place)
    assert writer["CurrentTransactionStartOffset"] == "None"


@everywhere
def test_transactions_tool_ends_a_transaction(
    tool: Tool, topic: str, name: str, producer: Producer
) -> None:
    write(producer, topic, "lost")

    tool("kafka-transactions", "forceTerminateTransaction", "--transactionalId", name)

    assert state(tool, name)["TransactionState"] == "Empty"
    with pytest.raises(KafkaException, match="fenced"):
        producer.commit_transaction()
    write_plainly = ("--topic", topic, "--num-records", "1", "--throughput", "-1")
    tool("kafka-producer-perf-test", *write_plainly, "--payload-monotonic")
    assert tool.read(topic, 1, *COMMITTED) == ["0"]


@everywhere
def test_transactions_tool_finds_no_hanging_transaction(
    tool: Tool, topic: str, producer: Producer
) -> None:
    write(producer, topic, "open")
    place = ("--topic", topic, "--partition", "0")

    age = ("--max-transaction-timeout", "0")
    assert tool.rows("kafka-transactions", "find-hanging", "--topic", topic, *age) == []
    said = tool.refused("kafka-transactions", "abort", *place, "--start-offset", "7")
    assert "Could not find any open transactions starting at offset 7" in said
    producer.abort_transaction()


@pytest.mark.parametrize("bootstrap", KINDS, indirect=True)
def test_transaction_with_a_live_producer_is_not_aborted(
    tool: Tool, topic: str, producer: Producer
) -> None:
    # Kafka would end it in this partition, regardless of its outcome in the others.
    write(producer, topic, "whole")
    place = ("--topic", topic, "--partition", "0", "--start-offset", "0")

    said = tool.refused("kafka-transactions", "abort", *place)

    assert "transactional operation in an invalid state" in said
    producer.commit_transaction()
    assert tool.read(topic, 1, *COMMITTED) == ["whole"]


@everywhere
def test_transactional_copy_is_exact_although_transactions_are_aborted(
    tools: ToolHost, tool: Tool, bootstrap: str, topic: str, name: str
) -> None:
    size = ("--num-records", str(COUNT), "--throughput", "-1", "--payload-monotonic")
    tool("kafka-producer-perf-test", "--topic", topic, *size)
    copy = new_topic(bootstrap)

    done = tools.tool(
        "kafka-transactional-message-copier",
        *("--broker-list", bootstrap, "--input-topic", topic, "--input-partition", "0"),
        *("--output-topic", copy, "--consumer-group", name, "--transactional-id", name),
        *("--transaction-size", "20", "--max-messages", str(COUNT)),
        *("--enable-random-aborts", "--use-group-metadata", "--group-mode"),
    )

    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["totalProcessed"] >= COUNT
    assert tool.read(copy, COUNT, *COMMITTED) == [str(number) for number in range(COUNT)]
    (place,) = tool.rows("kafka-consumer-groups", "--describe", "--group", name)
    assert place["CURRENT-OFFSET"] == str(COUNT)
