"""Raw connections of users to a server, and the rules that a test sets on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ask
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response
from rookery.wire.message import Api, Message
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from rookery.wire.messages.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from rookery.wire.messages.sasl_handshake import (
    SASL_HANDSHAKE,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.sweep.asking import Line, frame

ANY, LITERAL, PREFIXED = 1, 3, 4
DENY, ALLOW = 2, 3


class Rule(NamedTuple):
    """A rule, of alice's unless it names another principal."""

    type: int
    name: str
    operation: int = 2
    pattern: int = LITERAL
    permission: int = ALLOW
    host: str = "*"
    principal: str = "User:alice"


class UserConnection:
    """A connection of a user that logs in again if the server closes it."""

    mechanism = "PLAIN"

    def __init__(self, port: int, user: str, password: str) -> None:
        self._port = port
        self._message = f"\0{user}\0{password}".encode()
        self._line: Line | None = None

    def ask(self, api: Api[Any, Any], version: int, request: Message) -> Message | str:
        """Return the answer, or why there is none."""
        if self._line is None:
            self._line = Line(self._port)
            self._login()
        self._line.send(frame(api, version, 7, request))
        try:
            answer = self._line.read()
        except TimeoutError:
            self.close()
            return "timed out"
        if answer is None:
            self.close()
            return "closed"
        response: Message = read_response(api, version, answer)
        return response

    def _login(self) -> None:
        handshake = SaslHandshakeRequest(mechanism=self.mechanism)
        token = SaslAuthenticateRequest(auth_bytes=self._message)
        for api, version, request in (
            (SASL_HANDSHAKE, 1, handshake),
            (SASL_AUTHENTICATE, 2, token),
        ):
            answer = self.ask(api, version, request)
            assert isinstance(answer, SaslHandshakeResponse | SaslAuthenticateResponse)
            assert answer.error_code is ErrorCode.NONE

    def close(self) -> None:
        """Close the connection."""
        if self._line is not None:
            self._line.__exit__(None, None, None)
            self._line = None


class TestedServer:
    """A server with a listener for super users and one for logins."""

    __test__ = False

    def __init__(self, bootstrap: str, port: int) -> None:
        self.bootstrap = bootstrap
        self.port = port
        self._marks = 0

    def prepare(self, group: str, transactional_id: str) -> None:
        """Have a group with an offset, and a transactional id."""
        self.ensure_topic("offsets")
        part = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name="offsets", partitions=[part])
        commit = OffsetCommitRequest(group_id=group, topics=[topic])
        start = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        for kind, key in enumerate((group, transactional_id)):
            self.await_coordinator(kind, key)
        wait_until(
            lambda: self.ask(OFFSET_COMMIT, 8, commit).topics[0].partitions[0].error_code,
            accepts=lambda code: code is ErrorCode.NONE,
        )
        wait_until(
            lambda: self.ask(INIT_PRODUCER_ID, 4, start).error_code,
            accepts=lambda code: code is ErrorCode.NONE,
        )

    def await_coordinator(self, kind: int, key: str, version: int = 4) -> None:
        """Return when there is a coordinator for a key."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        wait_until(
            lambda: self.ask(FIND_COORDINATOR, version, request).coordinators[0].error_code,
            accepts=lambda code: code is ErrorCode.NONE,
        )

    def set_rules(self, rules: Iterable[Rule], prober: UserConnection | None = None) -> None:
        """Replace all rules; return when they are in force.

        Args:
            rules: the new rules.
            prober: a connection of the user `prober`, which gets one more rule. It is used to see
                that Kafka's controller, which decides about forwarded requests, has the rules, too.
        """
        everything = DeleteAclsFilter(
            resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
            principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
        )  # fmt: skip
        self.ask(DELETE_ACLS, 3, DeleteAclsRequest(filters=[everything]))
        creations = [
            AclCreation(
                resource_type=rule.type, resource_name=rule.name,
                resource_pattern_type=rule.pattern, principal=rule.principal, host=rule.host,
                operation=rule.operation, permission_type=rule.permission,
            )
            for rule in rules
        ]  # fmt: skip
        if prober is not None:
            self._marks += 1
            creations.append(_mark(self._marks))
        if creations:
            made = self.ask(CREATE_ACLS, 3, CreateAclsRequest(creations=creations))
            assert {result.error_code for result in made.results} == {ErrorCode.NONE}
        wait_until(lambda: self.count_rules() == len(creations))
        if prober is not None:
            wait_until(lambda: self._may_create(prober, f"mark-{self._marks}"))

    def _may_create(self, user: UserConnection, name: str) -> bool:
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], validate_only=True)
        answer = user.ask(CREATE_TOPICS, 7, request)
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics[0].error_code is ErrorCode.NONE

    def count_rules(self) -> int:
        """Return the number of rules in force."""
        request = DescribeAclsRequest(
            resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
            principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
        )  # fmt: skip
        answer = self.ask(DESCRIBE_ACLS, 3, request)
        return sum(len(resource.acls) for resource in answer.resources)

    def ensure_topic(self, name: str) -> bytes:
        """Create a topic unless it exists; return its id."""
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        [made] = self.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic])).topics
        if made.error_code is ErrorCode.NONE:
            # Kafka's brokers still know the id of a topic that was deleted just before.
            wait_until(lambda: self.topic_id(name) == made.topic_id)
        else:
            assert made.error_code is ErrorCode.TOPIC_ALREADY_EXISTS
            wait_until(lambda: self.topic_id(name) != bytes(16))
        return self.topic_id(name)

    def remove_topic(self, name: str) -> None:
        """Delete a topic if it exists."""
        if self.topic_id(name) == bytes(16):
            return
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
        self.ask(DELETE_TOPICS, 6, request)
        wait_until(lambda: self.topic_id(name) == bytes(16))

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic; zero if there is none."""
        wanted = [MetadataRequestTopic(name=name)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        [topic] = self.ask(METADATA, 12, request).topics
        return bytes(topic.topic_id)

    def ask(self, api: Api[Any, Any], version: int, request: Message) -> Any:
        """Ask as a super user."""
        return ask(self.bootstrap, api, version, request)


def _mark(number: int) -> AclCreation:
    return AclCreation(
        resource_type=2, resource_name=f"mark-{number}", resource_pattern_type=LITERAL,
        principal="User:prober", host="*", operation=5, permission_type=ALLOW,
    )  # fmt: skip
