"""A broker with access rules, over real connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from rookery.wire.messages.fetch import FETCH, FetchResponse
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import ANY, Rule, TestedServer, UserConnection
from tests.broker.raw import batch, fetch_request

TOPIC, GROUP, READ, WRITE, DESCRIBE = 2, 3, 3, 4, 8
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestedServer]:
    with GuardedBroker(tmp_path / "data") as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server)
        for name in ("mine", "secret"):
            server.ensure_topic(name)
        yield server


@pytest.fixture
def alice(server: TestedServer) -> Iterator[UserConnection]:
    user = UserConnection(server.port, "alice", USERS["alice"])
    yield user
    user.close()


def produce(acks: int = -1) -> ProduceRequest:
    topics = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=0, records=batch(b"x"))]
        )
        for name in ("mine", "secret")
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def test_a_request_is_served_for_the_allowed_topics_only(
    server: TestedServer, alice: UserConnection
) -> None:
    server.set_rules([Rule(TOPIC, "mine", WRITE), Rule(TOPIC, "mine", READ)])
    written = alice.ask(PRODUCE, 9, produce())
    assert isinstance(written, ProduceResponse)
    codes = {
        response.name: response.partition_responses[0].error_code for response in written.responses
    }
    assert codes == {"mine": ErrorCode.NONE, "secret": DENIED}


def test_a_denied_write_without_an_answer_closes_the_connection(
    server: TestedServer, alice: UserConnection
) -> None:
    server.set_rules([Rule(TOPIC, "mine")])
    assert alice.ask(PRODUCE, 9, produce(acks=0)) == "closed"


def test_a_list_of_all_topics_omits_those_that_may_not_be_described(
    server: TestedServer, alice: UserConnection
) -> None:
    server.set_rules([Rule(TOPIC, "mine", DESCRIBE)])
    answer = alice.ask(METADATA, 12, MetadataRequest(topics=None))
    assert isinstance(answer, MetadataResponse)
    assert [topic.name for topic in answer.topics] == ["mine"]


@pytest.mark.parametrize("version", range(14))
def test_a_client_without_rules_learns_of_the_brokers(
    server: TestedServer, alice: UserConnection, version: int
) -> None:
    wanted = [MetadataRequestTopic(name="mine")]
    answer = alice.ask(METADATA, version, MetadataRequest(topics=wanted))
    assert isinstance(answer, MetadataResponse)
    assert [broker.port for broker in answer.brokers] == [server.port]
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("mine", DENIED)]


def test_a_topic_is_not_created_without_permission(
    server: TestedServer, alice: UserConnection
) -> None:
    server.set_rules([Rule(TOPIC, "new", DESCRIBE)])
    wanted = [MetadataRequestTopic(name="new")]
    answer = alice.ask(METADATA, 12, MetadataRequest(topics=wanted))
    assert isinstance(answer, MetadataResponse)
    assert [topic.error_code for topic in answer.topics] == [DENIED]
    assert server.topic_id("new") == bytes(16)


def test_a_removed_rule_ends_a_fetch_session(server: TestedServer, alice: UserConnection) -> None:
    server.set_rules([Rule(TOPIC, "mine", READ)])
    opening = fetch_request({("mine", 0): 0}, session_epoch=0)
    opened = alice.ask(FETCH, 12, opening)
    assert isinstance(opened, FetchResponse)
    server.set_rules([])
    later = opening.replace(topics=[], session_id=opened.session_id, session_epoch=1)
    refused = alice.ask(FETCH, 12, later)
    assert isinstance(refused, FetchResponse)
    assert refused.error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    full = alice.ask(FETCH, 12, opening)
    assert isinstance(full, FetchResponse)
    assert full.responses[0].partitions[0].error_code is DENIED


def test_a_regular_expression_matches_only_topics_that_may_be_described(
    server: TestedServer, alice: UserConnection
) -> None:
    ids = {server.topic_id(name): name for name in ("mine", "secret")}
    joining = ConsumerGroupHeartbeatRequest(
        group_id="group", member_id="member", member_epoch=0, rebalance_timeout_ms=10_000,
        subscribed_topic_names=[], subscribed_topic_regex=".*", topic_partitions=[],
    )  # fmt: skip

    def assigned(request: ConsumerGroupHeartbeatRequest) -> tuple[int, set[str]]:
        answer = alice.ask(CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.error_code is ErrorCode.NONE
        assert answer.assignment is not None
        return answer.member_epoch, {ids[x.topic_id] for x in answer.assignment.topic_partitions}

    server.set_rules([Rule(GROUP, "group", READ), Rule(TOPIC, "mine", DESCRIBE)])
    epoch, first = assigned(joining)
    server.set_rules([Rule(GROUP, "group", READ), Rule(TOPIC, "*", DESCRIBE)])
    _, later = assigned(joining.replace(member_epoch=epoch))
    assert (first, later) == ({"mine"}, {"mine", "secret"})


@pytest.mark.parametrize("version", range(1, 4))
def test_rules_are_created_listed_and_deleted(server: TestedServer, version: int) -> None:
    rule = AclCreation(
        resource_type=TOPIC, resource_name="t", resource_pattern_type=4, principal="User:a",
        host="*", operation=READ, permission_type=3,
    )  # fmt: skip
    invalid = rule.replace(principal="nobody")
    created = server.ask(CREATE_ACLS, version, CreateAclsRequest(creations=[rule, invalid, rule]))
    codes = [result.error_code for result in created.results]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    choice: dict[str, Any] = {
        "resource_type_filter": TOPIC, "resource_name_filter": "topic", "pattern_type_filter": 2,
        "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
    }  # fmt: skip
    listed = server.ask(DESCRIBE_ACLS, version, DescribeAclsRequest(**choice))
    assert [resource.resource_name for resource in listed.resources] == ["t"]
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**choice)] * 2)
    deleted = server.ask(DELETE_ACLS, version, request)
    assert [len(result.matching_acls) for result in deleted.filter_results] == [1, 1]
    assert server.count_rules() == 0
