"""A rule or user that one broker changed is in force on the other when the answer arrives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rookery.errors import ErrorCode
from rookery.testing.backends import ServerBackend
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import ANY, TestedServer, UserConnection

ROUNDS = 20
RULE = AclCreation(
    resource_type=2, resource_name="mine", resource_pattern_type=3, principal="User:alice",
    host="*", operation=8, permission_type=3,
)  # fmt: skip
EVERY_RULE = DeleteAclsFilter(
    resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
    principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
)  # fmt: skip


@contextmanager
def serve_two(folder: Path, **options: str) -> Iterator[list[TestedServer]]:
    with GuardedBroker(folder, **options) as first, GuardedBroker(folder, **options) as second:
        servers = [TestedServer(broker.bootstrap, broker.login_port) for broker in (first, second)]
        add_users(servers[0])
        servers[0].ensure_topic("mine")
        yield servers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[TestedServer]]:
    with serve_two(tmp_path / "data") as servers:
        yield servers


def may_describe(user: UserConnection) -> bool:
    wanted = [MetadataRequestTopic(name="mine")]
    answer = user.ask(METADATA, 12, MetadataRequest(topics=wanted))
    assert isinstance(answer, MetadataResponse)
    return answer.topics[0].error_code is ErrorCode.NONE


def change_rules(servers: list[TestedServer], rounds: int) -> list[tuple[bool, bool]]:
    """Create and delete a rule on one broker; return what alice might do on the other one."""
    first, second = servers
    seen = []
    with closing(UserConnection(second.port, "alice", USERS["alice"])) as alice:
        for _ in range(rounds):
            first.ask(CREATE_ACLS, 3, CreateAclsRequest(creations=[RULE]))
            allowed = may_describe(alice)
            first.ask(DELETE_ACLS, 3, DeleteAclsRequest(filters=[EVERY_RULE]))
            seen.append((allowed, may_describe(alice)))
    return seen


def test_a_rule_is_in_force_on_the_other_broker_before_the_answer(
    servers: list[TestedServer],
) -> None:
    assert change_rules(servers, ROUNDS) == [(True, False)] * ROUNDS


@pytest.mark.parametrize("cluster_log", ["etcd", "store"])
def test_a_rule_is_in_force_on_other_cluster_logs_before_the_answer(
    backend: ServerBackend, tmp_path: Path, cluster_log: str
) -> None:
    name = tmp_path.name
    cluster = backend.cluster(name) if cluster_log == "etcd" else ""
    with serve_two(tmp_path, store=backend.store(name), cluster=cluster) as servers:
        assert change_rules(servers, ROUNDS // 4) == [(True, False)] * (ROUNDS // 4)


def test_a_removed_user_cannot_log_in_on_the_other_broker(servers: list[TestedServer]) -> None:
    first, second = servers
    deletion = ScramCredentialDeletion(name="alice", mechanism=1)
    request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    for _ in range(ROUNDS // 4):
        first.ask(ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        with (
            closing(UserConnection(second.port, "alice", USERS["alice"])) as alice,
            pytest.raises(AssertionError),
        ):
            may_describe(alice)
        add_users(first)
        with closing(UserConnection(second.port, "alice", USERS["alice"])) as alice:
            assert not may_describe(alice)
