"""Groups and transactions with topics that a client may not describe, as on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.testing.wait import wait_until
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from rookery.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from rookery.wire.messages.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users, guarded_kafka
from tests.broker.access.login import DENY, PREFIXED, Rule, TestedServer, UserConnection

TOPIC, GROUP, TXN = 2, 3, 5
READ, DESCRIBE = 3, 8
SEEN, HIDDEN = "birds-seen", "hidden"
TXN_ID = "txn"
GROUPS: dict[str, dict[str, Any]] = {
    "seen": {"subscribed_topic_names": [SEEN]},
    "both": {"subscribed_topic_names": [SEEN, HIDDEN]},
    "hidden": {"subscribed_topic_names": [HIDDEN]},
    "not created": {"subscribed_topic_names": [SEEN, "not-created"]},
    "regular expression": {"subscribed_topic_names": [], "subscribed_topic_regex": "birds-.*"},
    "wide expression": {"subscribed_topic_names": [], "subscribed_topic_regex": ".*(seen|hidden)"},
}
"""The groups, and what the member of each subscribes to."""
MAY_NAME = [Rule(GROUP, "*", DESCRIBE), Rule(TXN, "*", DESCRIBE)]
"""Rules for groups and transactions, without any for topics."""
SCENARIOS: dict[str, list[Rule]] = {
    "no topic": MAY_NAME,
    "one topic": [*MAY_NAME, Rule(TOPIC, SEEN, DESCRIBE)],
    "one topic to read": [*MAY_NAME, Rule(TOPIC, SEEN, READ)],
    "prefix": [*MAY_NAME, Rule(TOPIC, "birds", DESCRIBE, PREFIXED)],
    "longer prefix": [*MAY_NAME, Rule(TOPIC, f"{SEEN}-", DESCRIBE, PREFIXED)],
    "every topic": [*MAY_NAME, Rule(TOPIC, "*", DESCRIBE)],
    "one topic denied": [
        *MAY_NAME, Rule(TOPIC, "*"), Rule(TOPIC, HIDDEN, DESCRIBE, permission=DENY),
    ],
    "topics only": [Rule(TOPIC, "*")],
    "another host": [*MAY_NAME, Rule(TOPIC, "*", host="10.0.0.1")],
}  # fmt: skip


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestedServer]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    with GuardedBroker(folder) as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server)
        yield server


@pytest.fixture(scope="module")
def theirs(own_kafka: None) -> Iterator[TestedServer]:
    with guarded_kafka() as server:
        yield server


class Member:
    """A member of a group, which has its assignment."""

    def __init__(self, server: TestedServer, group: str) -> None:
        self._server = server
        self._group = group
        self._owned: list[TopicPartitions] = []
        self._epoch = 0

    def join(self, topics: int) -> None:
        """Return when a number of topics are assigned and confirmed."""
        wait_until(self._beat, accepts=lambda beat: beat == (ErrorCode.NONE, topics))
        wait_until(self._beat, accepts=lambda beat: beat[0] is ErrorCode.NONE)

    def leave(self) -> None:
        self._epoch = -1
        self._beat()

    def _beat(self) -> tuple[ErrorCode, int]:
        subscription = GROUPS[self._group] if self._epoch == 0 else {}
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id="member",
            member_epoch=self._epoch,
            rebalance_timeout_ms=300_000 if self._epoch == 0 else -1,
            topic_partitions=self._owned,
            **subscription,
        )
        answer = self._server.ask(CONSUMER_GROUP_HEARTBEAT, 1, request)
        if answer.error_code is ErrorCode.NONE:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self._owned = answer.assignment.topic_partitions
        return answer.error_code, len(self._owned)


@pytest.fixture(scope="module")
def members(ours: TestedServer, theirs: TestedServer) -> Iterator[None]:
    """The members and the transaction that clients ask about, on both servers."""
    joined: list[Member] = []
    for server in (ours, theirs):
        for topic in (SEEN, HIDDEN):
            server.ensure_topic(topic)
        for name in GROUPS:
            server.prepare(name, TXN_ID)
            member = Member(server, name)
            member.join(topics=2 if name in {"both", "wide expression"} else 1)
            joined.append(member)
        begin_transaction(server)
    yield
    for member in joined:
        member.leave()


def begin_transaction(server: TestedServer) -> None:
    start = InitProducerIdRequest(transactional_id=TXN_ID, transaction_timeout_ms=600_000)
    producer = wait_until(
        lambda: server.ask(INIT_PRODUCER_ID, 4, start),
        accepts=lambda answer: answer.error_code is ErrorCode.NONE,
    )
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (SEEN, HIDDEN)]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TXN_ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    wait_until(
        lambda: server.ask(ADD_PARTITIONS_TO_TXN, 3, request).results_by_topic_v3_and_below,
        accepts=lambda results: all(
            part.partition_error_code is ErrorCode.NONE
            for topic in results
            for part in topic.results_by_partition
        ),
    )


def describe_groups(user: UserConnection, version: int) -> dict[str, object]:
    request = ConsumerGroupDescribeRequest(group_ids=[*GROUPS], include_authorized_operations=True)
    answer: Any = user.ask(CONSUMER_GROUP_DESCRIBE, version, request)
    return {group.group_id: outline_of(group) for group in answer.groups}


def outline_of(group: DescribedGroup) -> object:
    """Return what two servers must say alike; they number epochs as they like."""
    if group.error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        # Kafka has no message here; refusals of ours have one.
        return group.replace(error_message=None)
    if group.error_code is not ErrorCode.NONE:
        return group
    members = [
        (
            member.member_id, sorted(member.subscribed_topic_names), member.subscribed_topic_regex,
            topics_of(member.assignment), topics_of(member.target_assignment),
        )
        for member in group.members
    ]  # fmt: skip
    return group.group_state, group.assignor_name, group.authorized_operations, members


def topics_of(assignment: Any) -> list[tuple[str, bool, list[int]]]:
    return sorted(
        (each.topic_name, each.topic_id != ZERO_UUID, each.partitions)
        for each in assignment.topic_partitions
    )


def describe_transaction(user: UserConnection) -> list[object]:
    request = DescribeTransactionsRequest(transactional_ids=[TXN_ID])
    answer: Any = user.ask(DESCRIBE_TRANSACTIONS, 0, request)
    return [
        (state.error_code, state.transactional_id, state.transaction_state,
         sorted((topic.topic, topic.partitions) for topic in state.topics))
        for state in answer.transaction_states
    ]  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_inner_topics_are_those_of_kafka(
    ours: TestedServer, theirs: TestedServer, members: None, name: str
) -> None:
    answers = []
    for server in (ours, theirs):
        prober = UserConnection(server.port, "prober", USERS["prober"])
        alice = UserConnection(server.port, "alice", USERS["alice"])
        with closing(prober), closing(alice):
            server.set_rules(SCENARIOS[name], prober)
            answers.append(
                {
                    "groups": describe_groups(alice, 0),
                    "groups with types": describe_groups(alice, 1),
                    "transaction": describe_transaction(alice),
                }
            )

    assert answers[0] == answers[1]
