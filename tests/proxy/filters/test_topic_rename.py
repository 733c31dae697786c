"""Topics that have other names for clients."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ConfigError, ErrorCode
from rookery.proxy.filters.topic_prefix import TopicPrefix
from rookery.proxy.filters.topic_rename import RenamedPattern, TopicRename, complete
from rookery.service.namepattern import NamePattern
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from tests.proxy.filters.conftest import read

NAMES = st.sampled_from("abcdef")


@given(st.lists(NAMES, unique=True), st.lists(NAMES, unique=True))
def test_every_name_has_one_other(here: list[str], there: list[str]) -> None:
    topics = dict(zip(here, there, strict=False))

    whole = complete(topics)

    assert topics.items() <= whole.items()
    assert set(whole) == set(whole.values()) == {*topics, *topics.values()}


@pytest.fixture
def names() -> tuple[str, str]:
    mark = uuid4().hex[:8]
    return f"birds-{mark}", f"aves.{mark}"


def test_clients_see_their_names(server: str, names: tuple[str, str]) -> None:
    mine, theirs = names
    with ServedProxy(server, filters=[TopicRename({"topics": {mine: theirs}})]) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        admin.create_topics([NewTopic(mine, 2, 1)])[mine].result(20)
        upstream = AdminClient({"bootstrap.servers": server})
        wait_until(lambda: theirs in upstream.list_topics(timeout=20).topics)
        assert mine in admin.list_topics(timeout=20).topics
        assert mine not in upstream.list_topics(timeout=20).topics
        producer = Producer({"bootstrap.servers": proxy.bootstrap})
        producer.produce(mine, b"value", partition=0)
        assert producer.flush(20) == 0
        assert read(proxy.bootstrap, mine, 1)[0].topic() == mine
    assert read(server, theirs, 1)[0].value() == b"value"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_exchanged_names_stay_two_topics(
    server: str, names: tuple[str, str], protocol: str
) -> None:
    mine, theirs = names
    admin = AdminClient({"bootstrap.servers": server})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(20)
    direct = Producer({"bootstrap.servers": server})
    for name in names:
        direct.produce(name, name)
    assert direct.flush(20) == 0
    with ServedProxy(server, filters=[TopicRename({"topics": {mine: theirs}})]) as proxy:
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": f"g-{uuid4().hex}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        seen: dict[str | None, bytes | None] = {}
        try:
            consumer.subscribe(list(names))

            def has_both() -> bool:
                for message in consumer.consume(2, timeout=1.0):
                    assert message.error() is None, message.error()
                    seen[message.topic()] = message.value()
                return len(seen) == 2

            wait_until(has_both)
        finally:
            consumer.close()

    assert seen == {mine: theirs.encode(), theirs: mine.encode()}


def test_patterns_match_what_clients_mean() -> None:
    changed = RenamedPattern("bir.*|x", complete({"birds": "a.v"}))

    pattern = NamePattern(changed.text)
    assert [name for name in ("birds", "a.v", "aXv", "x", "y") if pattern.matches(name)] == [
        "birds",
        "a.v",
        "x",
    ]
    assert changed.unmeant == ["birds"]
    assert RenamedPattern("x.*", {"birds": "a.v"}).text == "x.*"


def test_pattern_is_refused_if_it_matches_a_topic_that_clients_do_not_mean(
    server: str, names: tuple[str, str]
) -> None:
    mine, theirs = names
    beat = ConsumerGroupHeartbeatRequest(
        group_id=f"g-{uuid4().hex}",
        member_id=str(uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex=f"{mine[:-1]}.",
        topic_partitions=[],
    )
    with ServedProxy(server, filters=[TopicRename({"topics": {mine: theirs}})]) as proxy:
        node = next(iter(proxy.proxy.clusters[0].nodes.values())).text
        accepted = ask(node, CONSUMER_GROUP_HEARTBEAT, 1, beat)
        admin = AdminClient({"bootstrap.servers": server})
        admin.create_topics([NewTopic(mine, 1, 1)])[mine].result(20)
        refused = ask(node, CONSUMER_GROUP_HEARTBEAT, 1, beat)

    assert accepted.error_code is ErrorCode.NONE
    assert refused.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_groups_and_transactions_can_have_a_prefix(server: str) -> None:
    prefix, group = f"{uuid4().hex[:8]}.", f"g-{uuid4().hex}"
    options = {"prefix": prefix, "groups": True, "transactional_ids": True}
    with ServedProxy(server, filters=[TopicPrefix(options)]) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": "tx"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", b"value")
        producer.commit_transaction(20)
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        message = wait_until(lambda: consumer.poll(1.0))
        assert message is not None
        assert message.value() == b"value"
        consumer.commit(asynchronous=False)
        inside, outside = groups_at(proxy.bootstrap), groups_at(server)
        consumer.close()

    assert inside == {group}
    assert f"{prefix}{group}" in outside
    assert group not in outside


def groups_at(bootstrap: str) -> set[str]:
    response = ask(bootstrap, LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))
    return {group.group_id for group in response.groups}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set the option topics"),
        ({"topics": {"a": "b/c"}}, "'b/c' cannot be the name of a topic"),
        ({"topics": {"a": "x", "b": "x"}}, "two names stand for the same topic"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TopicRename(options)
