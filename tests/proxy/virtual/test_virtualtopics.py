"""Topics are checked before they are served, and their logs follow their ids."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rookery.clock import SystemClock, SystemRandom
from rookery.errors import ErrorCode, Unavailable
from rookery.model.address import Address
from rookery.net.upstream import Upstream
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.instances import InstanceList
from rookery.proxy.virtual.rules import VirtualRules
from rookery.proxy.virtual.topicbook import TopicEntry, TopicKind
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from rookery.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


async def refuse(*_: object) -> Upstream:
    raise Unavailable("there is no upstream")


def open_topics() -> VirtualTopics:
    clock = SystemClock()
    instances = InstanceList(1, {1: Address("127.0.0.1", 9092)})
    directory = NodeDirectory(instances, refuse, refuse, clock, SystemRandom())
    rules = VirtualRules({"virtual_partitions": 4, "physical_partitions": 2})
    return VirtualTopics(rules, directory, clock)


def test_a_request_that_holds_an_old_entry_leaves_the_log_of_the_new_topic() -> None:
    topics = open_topics()
    rule = topics.rules.find("topic")
    assert rule is not None
    old, new = (TopicEntry("topic", TopicKind.VIRTUAL, rule, bytes([each] * 16)) for each in (1, 2))

    topics.book._note(old)
    first = topics.log(old, 1)
    topics.book._note(new)
    second = topics.log(new, 1)

    assert first.trouble
    assert topics.log(old, 1) is second
    assert not second.trouble


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicKind.MISSING),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicKind.REFUSED),
    ],
)
def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, kind: TopicKind
) -> None:
    topics = open_topics()
    result = DescribeConfigsResult(
        error_code=code, error_message=None, resource_type=2, resource_name="topic", configs=[]
    )

    async def describe(*_: Any) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=[result])

    monkeypatch.setattr(topics.calls, "ask_any", describe)
    partitions = [
        MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=1,
            replica_nodes=[1],
            isr_nodes=[1],
        )
        for index in range(2)
    ]
    row = MetadataResponseTopic(
        error_code=ErrorCode.NONE, name="topic", topic_id=b"1" * 16, partitions=partitions
    )

    asyncio.run(topics.book.examine([row]))

    entry = topics.book.find("topic")
    assert entry is not None
    assert entry.kind is kind
