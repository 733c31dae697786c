"""All instances choose the same instance for a partition or broker, evenly and stably."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.proxy.nodes.brokernodes import read_instances
from rookery.proxy.nodes.instances import InstanceList, parse_instances
from rookery.proxy.settings import VirtualClusterSettings

node_ids = st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=7).map(sorted)
topics = st.text(max_size=20)


def instances_of(nodes: list[int], own: int | None = None) -> InstanceList:
    addresses = {node: Address(f"proxy-{node}", 9092) for node in nodes}
    return InstanceList(nodes[0] if own is None else own, addresses)


@given(nodes=node_ids, topic=topics, turns=st.integers(1, 5))
def test_partitions_of_a_topic_are_spread_evenly(nodes: list[int], topic: str, turns: int) -> None:
    instances = instances_of(nodes)

    counts = Counter(instances.leader_of(topic, each) for each in range(len(nodes) * turns))

    assert counts == dict.fromkeys(nodes, turns)


def test_first_partitions_of_topics_are_spread() -> None:
    instances = instances_of([1, 2, 3])

    counts = Counter(instances.leader_of(f"topic-{number}", 0) for number in range(3000))

    assert all(900 < count < 1100 for count in counts.values())


@given(nodes=node_ids, topic=topics, partition=st.integers(0, 100), data=st.data())
def test_all_instances_agree(
    nodes: list[int], topic: str, partition: int, data: st.DataObject
) -> None:
    leaders = {
        instances_of(data.draw(st.permutations(nodes)), own).leader_of(topic, partition)
        for own in nodes
    }

    assert len(leaders) == 1


@given(nodes=node_ids.filter(lambda nodes: len(nodes) > 1), topic=topics, data=st.data())
def test_only_partitions_of_an_instance_that_is_away_move(
    nodes: list[int], topic: str, data: st.DataObject
) -> None:
    instances = instances_of(nodes)
    away = data.draw(st.sampled_from(nodes[1:]))
    before = [instances.leader_of(topic, each) for each in range(20)]

    instances.set_away({away})

    after = [instances.leader_of(topic, each) for each in range(20)]
    assert away not in after
    assert [old for old in before if old != away] == [
        new for old, new in zip(before, after, strict=True) if old != away
    ]


@given(nodes=node_ids, topic=topics, partition=st.integers(0, 100), count=st.integers(0, 9))
def test_replicas_are_distinct_and_begin_with_the_leader(
    nodes: list[int], topic: str, partition: int, count: int
) -> None:
    instances = instances_of(nodes)

    replicas = instances.replicas_of(topic, partition, count)

    assert replicas[0] == instances.leader_of(topic, partition)
    assert len(set(replicas)) == len(replicas) == min(max(count, 1), len(nodes))


@given(nodes=node_ids, brokers=st.sets(st.integers(0, 10_000), max_size=20))
def test_each_broker_has_one_instance_that_stands_for_it(
    nodes: list[int], brokers: set[int]
) -> None:
    reported = [
        broker for own in nodes for broker in brokers if instances_of(nodes, own).stands_for(broker)
    ]

    assert sorted(reported) == sorted(brokers)


def test_own_instance_is_never_away() -> None:
    instances = instances_of([1, 2], own=2)

    instances.set_away({1, 2})

    assert list(instances.present) == [2]
    assert instances.controller_id == 2


def test_list_is_parsed() -> None:
    assert parse_instances("2=proxy-2:9092, 1=[::1]:9093,") == {
        2: Address("proxy-2", 9092),
        1: Address("::1", 9093),
    }
    assert parse_instances("") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("proxy-1:9092", "is not an instance such as"),
        ("one=proxy-1:9092", "is not an instance such as"),
        ("1=proxy-1", "is not host:port"),
        ("1=proxy-1:9092,1=proxy-2:9092", "node id 1 is given twice"),
        ("1=proxy:9092,2=proxy:9092", "one instance"),
        ("2147483648=proxy:9092", "greater than"),
    ],
)
def test_bad_list_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_instances(text)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (VirtualClusterSettings(instances="1=proxy:9092", node_id=2), "node_id: 2 is not among"),
        (VirtualClusterSettings(node_ports="9100-9110"), "node_ports: is for"),
        (VirtualClusterSettings(node_names="b-$(node_id).example"), "node_names: is for"),
    ],
)
def test_contradictory_settings_are_refused(settings: VirtualClusterSettings, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_instances(settings)


def test_single_instance_needs_no_list() -> None:
    [instances] = read_instances(VirtualClusterSettings(node_id=7)).values()

    instances.set_own_address(Address("proxy", 9092))

    assert instances.present == {7: Address("proxy", 9092)}
    assert instances.leader_of("birds", 3) == 7
