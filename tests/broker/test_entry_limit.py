"""Requests whose events exceed one entry of the cluster log are divided and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.broker.settings import BrokerSettings
from rookery.cluster.entry import divide_offsets
from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.events.txnevents import TransactionOffsetsCommitted
from rookery.errors import ErrorCode
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.codec import encode_bytes
from rookery.wire.message import Message
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from rookery.wire.messages.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from rookery.wire.messages.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import TestedServer, UserConnection
from tests.broker.raw import create, raw
from tests.broker.txns import Transactor

ENTRY_BYTES = 384 * 1024
PARTITIONS = 10_000
# Each twice: named by id and number in an event, they exceed an entry.
PLACES = [*range(PARTITIONS), *range(PARTITIONS)]
NOTED = 120
NOTE = "é" * 2_000
LONGEST_ID = "i" * 32_767


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with ServedBroker(folder, BrokerSettings(durability="os")) as broker:
        create(broker, "t", PARTITIONS)
        yield broker


def offset(index: int, note: str) -> OffsetCommitted:
    return OffsetCommitted(
        topic_id=bytes(16), partition=index, offset=1, leader_epoch=0, metadata=note
    )


def commit_request(group: str, noted: int) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=5, committed_metadata=NOTE if noted > 1 else ""
        )
        for index in range(noted)
    ]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=parts)]
    )


def txn_commit_request(group: str, producer: Transactor) -> TxnOffsetCommitRequest:
    parts = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata=NOTE
        )
        for index in range(NOTED)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=parts)],
    )


def committed(broker: ServedBroker, group: str) -> list[int]:
    kept = broker.broker.replica.state.groups.by_id[group]
    return [commit.offset for _, _, commit in kept.each_offset()]


@given(st.lists(st.sampled_from(["", "short", NOTE, "m" * 4_096]), max_size=400))
@settings(max_examples=20, deadline=None)
def test_every_part_of_a_commit_fits_into_an_entry(notes: list[str]) -> None:
    offsets = [offset(index, note) for index, note in enumerate(notes)]

    parts = list(divide_offsets(offsets))

    assert [item for part in parts for item in part] == offsets
    for part in parts:
        event: Message = TransactionOffsetsCommitted(
            transactional_id=LONGEST_ID,
            producer_id=1,
            producer_epoch=1,
            group_id=LONGEST_ID,
            group_epoch=1,
            offsets=part,
        )
        assert len(encode_bytes(event, 0)) < ENTRY_BYTES


async def test_large_offset_commit_is_split(served: ServedBroker) -> None:
    async with raw(served) as client:
        answer = await client.ask(OFFSET_COMMIT, 8, commit_request("plain", NOTED))

    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.NONE}
    assert committed(served, "plain") == [5] * NOTED


async def test_large_transactional_commit_is_split_and_does_not_delay_the_next(
    served: ServedBroker,
) -> None:
    async with raw(served) as client, raw(served) as other:
        producer = Transactor(client, "large", is_newer=True)
        await producer.init()
        # Both wait in line while the group is loaded.
        large = asyncio.ensure_future(
            client.ask(TXN_OFFSET_COMMIT, 5, txn_commit_request("in-txn", producer))
        )
        small = asyncio.ensure_future(other.ask(OFFSET_COMMIT, 8, commit_request("in-txn", 1)))
        answers = await asyncio.gather(large, small)
        await producer.end(commit=True)

    for answer in answers:
        assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.NONE}
    assert committed(served, "in-txn") == [7] * NOTED


async def test_names_that_older_versions_cannot_carry_are_refused(served: ServedBroker) -> None:
    """Kafka closes the connection. Kept, such a name would end each list in an older version."""
    too_long = LONGEST_ID + "i"
    async with raw(served) as client:
        kept = await client.ask(OFFSET_COMMIT, 8, commit_request(LONGEST_ID, 1))
        commit = await client.ask(OFFSET_COMMIT, 8, commit_request(too_long, 1))
        start = InitProducerIdRequest(transactional_id=too_long, transaction_timeout_ms=60_000)
        begun = await client.ask(INIT_PRODUCER_ID, 4, start)
        listed = await client.ask(LIST_GROUPS, 2, ListGroupsRequest())

    assert kept.topics[0].partitions[0].error_code is ErrorCode.NONE
    assert commit.topics[0].partitions[0].error_code is ErrorCode.INVALID_GROUP_ID
    assert begun.error_code is ErrorCode.INVALID_REQUEST
    assert LONGEST_ID in {group.group_id for group in listed.groups}


async def test_all_partitions_of_a_large_topic_are_added_to_a_transaction(
    served: ServedBroker,
) -> None:
    async with raw(served) as client:
        producer = Transactor(client, "wide", is_newer=False)
        await producer.init()
        assert set(await producer.add("t", *PLACES)) == {ErrorCode.NONE}
        assert (await producer.end(commit=False)).error_code is ErrorCode.NONE


async def test_markers_for_all_partitions_of_a_large_topic_are_answered(
    served: ServedBroker,
) -> None:
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=PLACES)
    marker = WritableTxnMarker(
        producer_id=10**6,
        producer_epoch=0,
        coordinator_epoch=0,
        transaction_result=False,
        topics=[topic],
    )
    async with raw(served) as client:
        answer = await client.ask(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))

    assert len(answer.markers[0].topics[0].partitions) == len(PLACES)


async def test_offsets_of_all_partitions_of_a_large_topic_are_deleted(
    served: ServedBroker,
) -> None:
    parts = [OffsetDeleteRequestPartition(partition_index=index) for index in PLACES]
    topic = OffsetDeleteRequestTopic(name="t", partitions=parts)
    async with raw(served) as client:
        await client.ask(OFFSET_COMMIT, 8, commit_request("deleting", 3))
        request = OffsetDeleteRequest(group_id="deleting", topics=[topic])
        answer = await client.ask(OFFSET_DELETE, 0, request)

    assert answer.error_code is ErrorCode.NONE
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.NONE}
    assert committed(served, "deleting") == []


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestedServer]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server)
        yield server


def test_rules_are_created_and_deleted_in_several_entries(guarded: TestedServer) -> None:
    names = [f"{number:05}".rjust(249, "t") for number in range(2_000)]
    creations = [
        AclCreation(
            resource_type=2, resource_name=name, resource_pattern_type=3, host="*", operation=3,
            principal="User:alice" if at else "nobody", permission_type=3,
        )
        for at, name in enumerate(names)
    ]  # fmt: skip
    filters = [
        DeleteAclsFilter(
            resource_type_filter=2, resource_name_filter=name, pattern_type_filter=3,
            principal_filter=None, host_filter=None, operation=1 if at else 99, permission_type=1,
        )
        for at, name in enumerate(names)
    ]  # fmt: skip

    created = guarded.ask(CREATE_ACLS, 3, CreateAclsRequest(creations=creations))

    codes = [result.error_code for result in created.results]
    assert codes == [ErrorCode.INVALID_REQUEST, *[ErrorCode.NONE] * 1_999]
    assert guarded.count_rules() == 1_999

    deleted = guarded.ask(DELETE_ACLS, 3, DeleteAclsRequest(filters=filters)).filter_results

    codes = [result.error_code for result in deleted]
    assert codes == [ErrorCode.INVALID_REQUEST, *[ErrorCode.NONE] * 1_999]
    assert [[rule.resource_name for rule in result.matching_acls] for result in deleted[1:]] == [
        [name] for name in names[1:]
    ]
    assert guarded.count_rules() == 0


# A single change that is larger than an entry is refused, and the others of its request count.


def test_only_the_user_with_an_oversized_salt_is_refused(guarded: TestedServer) -> None:
    upsertions = [
        ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4096, salt=salt, salted_password=bytes(32)
        )
        for name, salt in (("small", b"s"), ("large", bytes(ENTRY_BYTES)), ("other", b"s"))
    ]
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)

    answer = guarded.ask(ALTER_USER_SCRAM_CREDENTIALS, 0, request)

    assert [(result.user, result.error_code) for result in answer.results] == [
        ("small", ErrorCode.NONE),
        ("large", ErrorCode.POLICY_VIOLATION),
        ("other", ErrorCode.NONE),
    ]


def test_token_with_too_many_renewers_is_refused(guarded: TestedServer) -> None:
    renewers = [
        CreatableRenewers(principal_type="User", principal_name=f"{number:05}".rjust(200, "u"))
        for number in range(3_000)
    ]
    admin = UserConnection(guarded.port, "admin", USERS["admin"])
    try:
        request = CreateDelegationTokenRequest(renewers=renewers)
        answer = admin.ask(CREATE_DELEGATION_TOKEN, 3, request)
    finally:
        admin.close()

    assert isinstance(answer, CreateDelegationTokenResponse)
    assert answer.error_code is ErrorCode.POLICY_VIOLATION
