"""Entries: what fits into one, and lists that are divided."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.entry import (
    EVENTS,
    MAX_EVENT_BYTES,
    PART_BYTES,
    EntryAuthor,
    divide,
    divide_rules,
    fits,
    size_of,
    write_entry,
)
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.logevents import IdleProducer, ProducersExpired
from rookery.cluster.events.securityevents import AclRow
from rookery.cluster.events.topicevents import LogStartMoved, TopicCreated
from rookery.cluster.open import open_log
from rookery.cluster.port import MAX_ENTRY_BYTES
from rookery.cluster.replica import Replica
from rookery.errors import ErrorCode
from rookery.testing.clock import ManualClock
from rookery.testing.messages import random_message
from rookery.testing.wait import PATIENCE_SECONDS
from rookery.wire.message import Message

TOPIC = bytes(range(16))
WRITER = EntryAuthor(1, 1, 1, 1, 1, "c" * 22)


async def registered(name: str) -> Replica:
    replica = Replica(open_log(f"memory:{name}"), ManualClock())
    await replica.open()
    await replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=1))
    await join(replica)
    await replica.propose(
        [TopicCreated(topic_id=TOPIC, name="t", partitions=2, replication_factor=1, configs=[])]
    )
    return replica


async def join(replica: Replica) -> None:
    event = BrokerRegistered(process_id=bytes(16), node_id=1, host="h", port=1)
    await replica.register(event)


def start_of(partition: int) -> LogStartMoved:
    return LogStartMoved(topic_id=TOPIC, partition=partition, offset=0)


@pytest.mark.parametrize("kind", EVENTS.values(), ids=lambda kind: kind.__name__)
def test_parts_of_every_event_fit_into_an_entry(kind: type[Message]) -> None:
    random = Random(kind.KEY)
    assert kind.VERSIONS is not None
    some = [random_message(kind, kind.VERSIONS[-1], random) for _ in range(100)]
    events = some * (2 * MAX_ENTRY_BYTES // sum(map(size_of, some)) + 1)

    parts = list(divide(events))

    assert [event for part in parts for event in part] == events
    for part in parts:
        entry = write_entry(WRITER, part)
        assert len(entry) <= sum(map(size_of, part)) + len(write_entry(WRITER, []))
        assert len(entry) <= PART_BYTES + len(write_entry(WRITER, []))


def test_event_larger_than_a_part_has_its_own_part() -> None:
    large = [expired(10_000), start_of(0), expired(20_000), expired(20_000)]
    assert [len(part) for part in divide(large)] == [2, 1, 1]
    assert list(divide([])) == []


def rule(name: str, principal: str = "User:alice", host: str = "*") -> AclRow:
    return AclRow(
        resource_type=2, pattern_type=3, resource_name=name, principal=principal, host=host,
        operation=3, permission=3,
    )  # fmt: skip


def test_thousands_of_rules_are_one_change() -> None:
    rules = [rule(f"topic-{number}", f"User:user-{number % 100}") for number in range(8_000)]

    [event] = divide_rules(rules)

    assert event.rules == rules
    assert fits(event)


TEXTS = st.sampled_from(["", "t", "x" * 249, "x" * 32_000, "ü" * 16_000, "鴉" * 100])


@given(st.lists(st.builds(rule, TEXTS, TEXTS, TEXTS), max_size=60))
@settings(max_examples=30, deadline=None)
def test_parts_of_long_rules_fit_into_an_entry(rules: list[AclRow]) -> None:
    events = list(divide_rules(rules))

    assert [each for event in events for each in event.rules] == rules
    assert all(map(fits, events))


async def test_long_lists_are_split_and_their_outcomes_are_in_order() -> None:
    replica = await registered("long lists")
    before = replica.state.applied
    partitions = [at % 3 for at in range(9_000)]

    outcomes = await replica.propose_all([start_of(partition) for partition in partitions])

    known = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [outcome.error for outcome in outcomes] == [known[partition] for partition in partitions]
    assert replica.state.applied > before + 1
    await replica.close()


async def test_event_larger_than_an_entry_is_refused_before_anything_is_proposed() -> None:
    replica = await registered("too large")
    huge = expired(MAX_EVENT_BYTES // 8)
    with pytest.raises(ValueError, match=r"ProducersExpired of .* divide its list"):
        await replica.propose_all([start_of(0), huge])
    assert replica.waiting == 0
    assert await replica.propose_all([]) == []
    await replica.close()


async def test_split_list_fails_as_a_whole_with_the_first_error() -> None:
    replica = await registered("fenced")
    await join(other := Replica(open_log("memory:fenced"), ManualClock()))
    proposed = replica.propose_all([start_of(0)] * 5_000)
    with pytest.raises(IncarnationFenced):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await proposed
    await replica.close()
    await other.close()


def expired(count: int) -> ProducersExpired:
    idle = [IdleProducer(producer_id=at, last_sequence=1) for at in range(count)]
    return ProducersExpired(topic_id=TOPIC, partition=0, producers=idle)
