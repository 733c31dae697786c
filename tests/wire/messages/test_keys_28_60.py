"""The APIs with keys 28 to 60: refusals in every version, and versions that Kafka 4 has dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.protocol import admin as aiokafka
from kafka.protocol.old import admin as kafka_python

from rookery.errors import ErrorCode
from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import Api, Message
from rookery.wire.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_delegation_token,
    delete_groups,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    elect_leaders,
    envelope,
    txn_offset_commit,
)

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
APIS = {api.name: api for api in apis().values() if 28 <= api.key <= 60}
EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in api.versions
]


def single(_request: object, _version: int) -> int:
    return 1


def partitions(topics: Any) -> int:
    return sum(len(topic.partitions) for topic in topics or [])


# How many codes a refusal holds. An API that is not named here has one, for the whole answer.
CODES: dict[str, Callable[[Any, int], int]] = {
    "TxnOffsetCommit": lambda request, _: partitions(request.topics),
    "CreateAcls": lambda request, _: len(request.creations),
    "DeleteAcls": lambda request, _: len(request.filters),
    "DescribeConfigs": lambda request, _: len(request.resources),
    "AlterConfigs": lambda request, _: len(request.resources),
    "AlterReplicaLogDirs": lambda request, _: sum(partitions(it.topics) for it in request.dirs),
    "DescribeLogDirs": lambda _, version: int(version >= 3),
    "CreatePartitions": lambda request, _: len(request.topics),
    "DeleteGroups": lambda request, _: len(request.groups_names),
    "ElectLeaders": lambda request, version: (
        int(version >= 1) + partitions(request.topic_partitions)
    ),
    "IncrementalAlterConfigs": lambda request, _: len(request.resources),
    "AlterPartitionReassignments": lambda request, _: 1 + partitions(request.topics),
    "AlterClientQuotas": lambda request, _: len(request.entries),
    "DescribeUserScramCredentials": lambda request, _: 1 + len(request.users or []),
    "AlterUserScramCredentials": lambda request, _: len(
        {change.name for change in [*request.deletions, *request.upsertions]}
    ),
}


def codes_in(value: object, version: int) -> Iterator[ErrorCode]:
    """Find every error code that a message holds in a version."""
    if isinstance(value, ErrorCode):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from codes_in(item, version)
    elif isinstance(value, Message):
        for name, entry in value.__fields__.items():
            if entry.is_in(version):
                yield from codes_in(getattr(value, name), version)


def test_all_keys_are_tested() -> None:
    assert sorted(api.key for api in APIS.values()) == list(range(28, 61))


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_refusal_carries_the_code_for_every_item(api: Api[Any, Any], version: int) -> None:
    expected = CODES.get(api.name, single)
    for seed in range(20):
        request = random_message(api.request, version, seed)
        answer = encode_bytes(api.refuse(request, CODE), version)
        decoded = decode(api.response, version, answer)
        assert encode_bytes(decoded, version) == answer
        assert list(codes_in(decoded, version)) == [CODE] * expected(request, version)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_random_messages_survive_a_round_trip(api: Api[Any, Any], version: int) -> None:
    for message in (api.request, api.response):
        for seed in range(20):
            sent = random_message(message, version, seed)
            assert decode(message, version, encode_bytes(sent, version)) == sent


REFUSALS: list[tuple[int, Message, Message]] = [
    (
        5,
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=1,
            producer_epoch=2,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=i, committed_offset=9
                        )
                        for i in indexes
                    ],
                )
                for name, indexes in [("a", [0, 7]), ("b", [3])]
            ],
        ),
        txn_offset_commit.TxnOffsetCommitResponse(
            topics=[
                txn_offset_commit.TxnOffsetCommitResponseTopic(
                    name=name,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitResponsePartition(
                            partition_index=i, error_code=CODE
                        )
                        for i in indexes
                    ],
                )
                for name, indexes in [("a", [0, 7]), ("b", [3])]
            ],
        ),
    ),
    (
        0,
        describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(resource_type=2, resource_name="orders")
            ]
        ),
        describe_configs.DescribeConfigsResponse(
            results=[
                describe_configs.DescribeConfigsResult(
                    error_code=CODE,
                    error_message=CODE.sentence,
                    resource_type=2,
                    resource_name="orders",
                    configs=[],
                )
            ]
        ),
    ),
    (
        2,
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path=path,
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(
                            name="a", partitions=[partition]
                        )
                    ],
                )
                for path, partition in [("/one", 4), ("/two", 5)]
            ]
        ),
        alter_replica_log_dirs.AlterReplicaLogDirsResponse(
            results=[
                alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                    topic_name="a",
                    partitions=[
                        alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(
                            partition_index=4, error_code=CODE
                        )
                    ],
                ),
                alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                    topic_name="a",
                    partitions=[
                        alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(
                            partition_index=5, error_code=CODE
                        )
                    ],
                ),
            ]
        ),
    ),
    (
        2,
        describe_log_dirs.DescribeLogDirsRequest(),
        describe_log_dirs.DescribeLogDirsResponse(results=[]),
    ),
    (
        3,
        describe_log_dirs.DescribeLogDirsRequest(),
        describe_log_dirs.DescribeLogDirsResponse(error_code=CODE, results=[]),
    ),
    (
        3,
        create_delegation_token.CreateDelegationTokenRequest(
            owner_principal_name="alice", renewers=[]
        ),
        create_delegation_token.CreateDelegationTokenResponse(
            error_code=CODE,
            principal_type="User",
            principal_name="ANONYMOUS",
            token_requester_principal_type="User",  # noqa: S106 (no password)
            token_requester_principal_name="ANONYMOUS",  # noqa: S106 (no password)
            issue_timestamp=-1,
            expiry_timestamp=-1,
            max_timestamp=-1,
            token_id="",
            hmac=b"",
        ),
    ),
    (
        1,
        delete_groups.DeleteGroupsRequest(groups_names=["x", "y"]),
        delete_groups.DeleteGroupsResponse(
            results=[
                delete_groups.DeletableGroupResult(group_id="x", error_code=CODE),
                delete_groups.DeletableGroupResult(group_id="y", error_code=CODE),
            ]
        ),
    ),
    (
        0,
        elect_leaders.ElectLeadersRequest(),
        elect_leaders.ElectLeadersResponse(replica_election_results=[]),
    ),
    (
        1,
        elect_leaders.ElectLeadersRequest(),
        elect_leaders.ElectLeadersResponse(error_code=CODE, replica_election_results=[]),
    ),
    (
        0,
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="a", partitions=[1])]
        ),
        elect_leaders.ElectLeadersResponse(
            replica_election_results=[
                elect_leaders.ReplicaElectionResult(
                    topic="a",
                    partition_result=[
                        elect_leaders.PartitionResult(
                            partition_id=1, error_code=CODE, error_message=CODE.sentence
                        )
                    ],
                )
            ]
        ),
    ),
    (
        1,
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False,
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name="a",
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(partition_index=2)
                    ],
                )
            ],
        ),
        alter_partition_reassignments.AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=False,
            error_code=CODE,
            error_message=CODE.sentence,
            responses=[
                alter_partition_reassignments.ReassignableTopicResponse(
                    name="a",
                    partitions=[
                        alter_partition_reassignments.ReassignablePartitionResponse(
                            partition_index=2, error_code=CODE, error_message=CODE.sentence
                        )
                    ],
                )
            ],
        ),
    ),
    (
        0,
        describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False),
        describe_client_quotas.DescribeClientQuotasResponse(
            error_code=CODE, error_message=CODE.sentence, entries=None
        ),
    ),
    (
        1,
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.AlterQuotaEntry(
                    entity=[
                        alter_client_quotas.EntityData(entity_type="user", entity_name="alice"),
                        alter_client_quotas.EntityData(entity_type="client-id", entity_name=None),
                    ],
                    ops=[
                        alter_client_quotas.OpData(
                            key="producer_byte_rate", value=1.0, remove=False
                        )
                    ],
                )
            ]
        ),
        alter_client_quotas.AlterClientQuotasResponse(
            entries=[
                alter_client_quotas.AlterQuotaResult(
                    error_code=CODE,
                    error_message=CODE.sentence,
                    entity=[
                        alter_client_quotas.EntityData(entity_type="user", entity_name="alice"),
                        alter_client_quotas.EntityData(entity_type="client-id", entity_name=None),
                    ],
                )
            ]
        ),
    ),
    (
        0,
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[
                alter_user_scram_credentials.ScramCredentialDeletion(name="alice", mechanism=1),
                alter_user_scram_credentials.ScramCredentialDeletion(name="bob", mechanism=1),
            ],
            upsertions=[
                alter_user_scram_credentials.ScramCredentialUpsertion(
                    name="alice", mechanism=2, iterations=4096, salt=b"s", salted_password=b"p"
                )
            ],
        ),
        alter_user_scram_credentials.AlterUserScramCredentialsResponse(
            results=[
                alter_user_scram_credentials.AlterUserScramCredentialsResult(
                    user=user, error_code=CODE, error_message=CODE.sentence
                )
                for user in ("alice", "bob")
            ]
        ),
    ),
    (
        0,
        envelope.EnvelopeRequest(
            request_data=b"r", request_principal=None, client_host_address=b"\x7f\0\0\1"
        ),
        envelope.EnvelopeResponse(response_data=None, error_code=CODE),
    ),
    (
        1,
        describe_cluster.DescribeClusterRequest(endpoint_type=2),
        describe_cluster.DescribeClusterResponse(
            error_code=CODE,
            error_message=CODE.sentence,
            endpoint_type=2,
            cluster_id="",
            controller_id=-1,
            brokers=[],
        ),
    ),
]


@pytest.mark.parametrize(
    ("version", "request_", "answer"),
    [pytest.param(*case, id=f"{type(case[1]).__name__}-{case[0]}") for case in REFUSALS],
)
def test_refusal_equals_the_expected_answer(
    version: int, request_: Message, answer: Message
) -> None:
    api = APIS[type(request_).__name__.removesuffix("Request")]
    sent = encode_bytes(api.refuse(request_, CODE), version)
    assert decode(api.response, version, sent) == answer


def test_refusal_does_not_echo_unknown_tags() -> None:
    part = alter_client_quotas.EntityData(entity_type="ip", entity_name="::1")
    part.unknown_tags = {77: b"from a newer client"}
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=[alter_client_quotas.AlterQuotaEntry(entity=[part], ops=[])]
    )
    answer = APIS["AlterClientQuotas"].refuse(request, CODE)
    assert answer.entries[0].entity[0].unknown_tags is None


# Version 0 of these went away with Kafka 4; both libraries wrote the layouts by hand.
DROPPED = [
    pytest.param(message, library, id=f"{message.__name__}-{library.__name__.partition('.')[0]}")
    for name in ("DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs", "DescribeLogDirs")
    for message in (APIS[name].request, APIS[name].response)
    for library in (kafka_python, aiokafka)
    if hasattr(library, f"{message.__name__}_v0")
    # kafka-python takes the list of partitions for a single number there
    and not (message.__name__ == "DescribeLogDirsRequest" and library is kafka_python)
]


def plain(value: object, version: int) -> Any:
    """Turn a message into the nested tuples that the old classes are made of."""
    if isinstance(value, Message):
        entries = value.__fields__.values()
        return tuple(plain(getattr(value, it.name), version) for it in entries if it.is_in(version))
    if isinstance(value, list):
        return [plain(item, version) for item in value]
    return value


@pytest.mark.parametrize(("message", "library"), DROPPED)
def test_version_0_equals_that_of_other_writers(message: type[Message], library: Any) -> None:
    theirs = getattr(library, f"{message.__name__}_v0")
    for seed in range(50):
        ours = random_message(message, 0, seed)
        encoded = encode_bytes(ours, 0)
        assert theirs(*plain(ours, 0)).encode() == encoded
        assert theirs.decode(encoded).encode() == encoded


@pytest.mark.parametrize(
    "name",
    [
        "AlterReplicaLogDirs", "DescribeLogDirs", "CreateDelegationToken", "RenewDelegationToken",
        "ExpireDelegationToken", "DescribeDelegationToken",
    ],
)  # fmt: skip
def test_version_0_has_the_layout_of_version_1(name: str) -> None:
    # Only the promise differs: from 1 on, a throttled client waits after the answer (KIP-219).
    for message in (APIS[name].request, APIS[name].response):
        for seed in range(20):
            old = random_message(message, 0, seed)
            assert encode_bytes(old, 0) == encode_bytes(old, 1)
