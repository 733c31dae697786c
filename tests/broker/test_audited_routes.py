"""Each change by an administrator leaves a record: client, address, resource and operation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rookery.broker.call import Route, routes
from rookery.broker.features import OWN
from rookery.broker.storage import objectlog
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.errors import ErrorCode
from rookery.security.access import Denial, Operation
from rookery.testing.wait import wait_until
from rookery.wire.message import Message
from rookery.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterQuotaEntry,
    EntityData,
    OpData,
)
from rookery.wire.messages.alter_configs import AlterableConfig as WholeConfig
from rookery.wire.messages.alter_configs import AlterConfigsRequest
from rookery.wire.messages.alter_configs import AlterConfigsResource as WholeResource
from rookery.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from rookery.wire.messages.create_acls import AclCreation, CreateAclsRequest
from rookery.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from rookery.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from rookery.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from rookery.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.delete_groups import DeleteGroupsRequest
from rookery.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from rookery.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from rookery.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from rookery.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from rookery.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from rookery.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from rookery.wire.messages.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from rookery.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import TestedServer, UserConnection

CLUSTER = {"type": "CLUSTER", "name": "kafka-cluster"}
CHANGING = frozenset(
    {
        Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS,
        Operation.CREATE_TOKENS,
    }
)  # fmt: skip
SALT = b"salt-of-audit"
LEVEL = FeatureUpdateKey(feature=OWN, max_version_level=FEATURE_LEVEL, upgrade_type=1)


def is_administrative(route: Route) -> bool:
    """Return whether a route is for administrators, or for the owners of tokens (no row)."""
    operations = {row.operation for row in route.touches if row.denial is not Denial.REDACT}
    return route.mutates and (not route.touches or bool(operations & CHANGING))


ADMINISTRATIVE = {route.api.name: route for route in routes().values() if is_administrative(route)}


class Admin:
    """An administrator of a broker with an audit file."""

    def __init__(self, broker: GuardedBroker, path: Path) -> None:
        self._path = path
        self._user = UserConnection(broker.login_port, "admin", USERS["admin"])
        self.server = TestedServer(broker.bootstrap, broker.login_port)

    def do(self, api: str, request: Message) -> Any:
        """Send a request in the newest version."""
        route = ADMINISTRATIVE[api]
        answer = self._user.ask(route.api, route.versions[-1], request)
        assert isinstance(answer, Message), answer
        return answer

    def topic(self, name: str) -> str:
        """Have a topic, created by another client."""
        self.server.ensure_topic(name)
        return name

    def group(self, name: str) -> str:
        """Have a group with an offset in the topic `offsets`."""
        self.server.prepare(name, f"id-of-{name}")
        return name

    def token(self) -> Any:
        """Create a delegation token."""
        created = self.do("CreateDelegationToken", CreateDelegationTokenRequest(renewers=[]))
        assert created.error_code is ErrorCode.NONE
        return created

    def records(self, api: str) -> list[dict[str, Any]]:
        """Return the records of an API."""
        entries = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [entry for entry in entries if entry.get("api") == api]

    def close(self) -> None:
        self._user.close()


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    folder = tmp_path_factory.mktemp("audited")
    with pytest.MonkeyPatch.context() as patch:
        # As if an earlier release had created the cluster, so that its level can be raised.
        patch.setattr(objectlog, "FEATURE_LEVEL", FEATURE_LEVEL - 1)
        path = folder / "audit.log"
        with GuardedBroker(folder / "data", audit_file=str(path)) as broker:
            server = TestedServer(broker.bootstrap, broker.login_port)
            server.ask(UPDATE_FEATURES, 2, UpdateFeaturesRequest(feature_updates=[LEVEL]))
            add_users(server)
            # The key of tokens is derived from it.
            wait_until(lambda: bool(broker.broker.replica.state.security.secret))
            with closing(Admin(broker, path)) as user:
                yield user


def alter_client_quotas(admin: Admin) -> dict[str, Any]:
    entry = AlterQuotaEntry(
        entity=[
            EntityData(entity_type="user", entity_name="alice"),
            EntityData(entity_type="client-id", entity_name=None),
        ],
        ops=[
            OpData(key="producer_byte_rate", value=1024.0, remove=False),
            OpData(key="consumer_byte_rate", value=0.0, remove=True),
        ],
    )
    admin.do("AlterClientQuotas", AlterClientQuotasRequest(entries=[entry], validate_only=False))
    return {
        "operation": "ALTER_CONFIGS",
        "resource": CLUSTER,
        "quota": {
            "entity": {"user": "alice", "client-id": None},
            "values": {"producer_byte_rate": 1024.0, "consumer_byte_rate": None},
        },
    }


def topic_record(name: str, operation: str) -> dict[str, Any]:
    return {"operation": operation, "resource": {"type": "TOPIC", "name": name}}


def alter_configs(admin: Admin) -> dict[str, Any]:
    name = admin.topic("replaced")
    setting = WholeConfig(name="retention.ms", value="1000000")
    resource = WholeResource(resource_type=2, resource_name=name, configs=[setting])
    admin.do("AlterConfigs", AlterConfigsRequest(resources=[resource]))
    return topic_record(name, "ALTER_CONFIGS")


def incremental_alter_configs(admin: Admin) -> dict[str, Any]:
    setting = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
    resource = AlterConfigsResource(resource_type=32, resource_name="set-group", configs=[setting])
    admin.do("IncrementalAlterConfigs", IncrementalAlterConfigsRequest(resources=[resource]))
    return {"operation": "ALTER_CONFIGS", "resource": {"type": "GROUP", "name": "set-group"}}


def alter_user_scram_credentials(admin: Admin) -> dict[str, Any]:
    upsertion = ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=SALT, salted_password=bytes(32)
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    admin.do("AlterUserScramCredentials", request)
    return {"operation": "ALTER", "resource": {"type": "USER", "name": "User:bob"}}


RULE = {
    "permission": "ALLOW", "principal": "User:bob", "host": "*", "operation": "READ",
    "type": "TOPIC", "pattern": "LITERAL",
}  # fmt: skip


def create_rule(admin: Admin, name: str) -> dict[str, Any]:
    creation = AclCreation(
        resource_type=2, resource_name=name, resource_pattern_type=3, principal="User:bob",
        host="*", operation=3, permission_type=3,
    )  # fmt: skip
    admin.do("CreateAcls", CreateAclsRequest(creations=[creation]))
    return {"operation": "ALTER", "resource": CLUSTER, "rule": {**RULE, "name": name}}


def create_acls(admin: Admin) -> dict[str, Any]:
    return create_rule(admin, "added")


def delete_acls(admin: Admin) -> dict[str, Any]:
    expected = create_rule(admin, "removed")
    wanted = DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter="removed", pattern_type_filter=3,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    admin.do("DeleteAcls", DeleteAclsRequest(filters=[wanted]))
    return expected


def create_delegation_token(admin: Admin) -> dict[str, Any]:
    admin.token()
    return {"operation": "CREATE_TOKENS", "resource": {"type": "USER", "name": "User:admin"}}


def token_record(token: Any, operation: str) -> dict[str, Any]:
    resource = {"type": "DELEGATION_TOKEN", "name": token.token_id}
    return {"operation": operation, "resource": resource}


def renew_delegation_token(admin: Admin) -> dict[str, Any]:
    token = admin.token()
    admin.do("RenewDelegationToken", RenewDelegationTokenRequest(hmac=bytes(token.hmac)))
    return token_record(token, "ALTER")


def expire_delegation_token(admin: Admin) -> dict[str, Any]:
    token = admin.token()
    request = ExpireDelegationTokenRequest(hmac=bytes(token.hmac), expiry_time_period_ms=-1)
    admin.do("ExpireDelegationToken", request)
    return token_record(token, "DELETE")


def create_partitions(admin: Admin) -> dict[str, Any]:
    name = admin.topic("grown")
    topic = CreatePartitionsTopic(name=name, count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=20_000, validate_only=False)
    admin.do("CreatePartitions", request)
    return topic_record(name, "ALTER")


def create_topics(admin: Admin) -> dict[str, Any]:
    topic = CreatableTopic(
        name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    admin.do("CreateTopics", CreateTopicsRequest(topics=[topic], timeout_ms=20_000))
    return topic_record("new", "CREATE")


def metadata(admin: Admin) -> dict[str, Any]:
    admin.do("Metadata", MetadataRequest(topics=[MetadataRequestTopic(name="unasked")]))
    return topic_record("unasked", "CREATE")


def delete_topics(admin: Admin) -> dict[str, Any]:
    name = admin.topic("old")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=20_000)
    admin.do("DeleteTopics", request)
    return topic_record(name, "DELETE")


def delete_records(admin: Admin) -> dict[str, Any]:
    name = admin.topic("emptied")
    part = DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = DeleteRecordsTopic(name=name, partitions=[part])
    admin.do("DeleteRecords", DeleteRecordsRequest(topics=[topic], timeout_ms=20_000))
    return topic_record(name, "DELETE")


def delete_groups(admin: Admin) -> dict[str, Any]:
    name = admin.group("gone-group")
    admin.do("DeleteGroups", DeleteGroupsRequest(groups_names=[name]))
    return {"operation": "DELETE", "resource": {"type": "GROUP", "name": name}}


def offset_delete(admin: Admin) -> dict[str, Any]:
    name = admin.group("shrunk-group")
    part = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name="offsets", partitions=[part])
    admin.do("OffsetDelete", OffsetDeleteRequest(group_id=name, topics=[topic]))
    return {"operation": "DELETE", "resource": {"type": "GROUP", "name": name}}


def write_txn_markers(admin: Admin) -> dict[str, Any]:
    name = admin.topic("marked")
    marker = WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=False,
        coordinator_epoch=0,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0])],
    )
    admin.do("WriteTxnMarkers", WriteTxnMarkersRequest(markers=[marker]))
    return topic_record(name, "ALTER")


def update_features(_admin: Admin) -> dict[str, Any]:
    # The fixture has raised the level: without it, there are no users.
    client = {"principal": "User:ANONYMOUS", "listener": "PLAINTEXT"}
    return {"operation": "ALTER", "resource": CLUSTER, **client}


SCENARIOS: dict[str, Callable[[Admin], dict[str, Any]]] = {
    "AlterClientQuotas": alter_client_quotas,
    "AlterConfigs": alter_configs,
    "AlterUserScramCredentials": alter_user_scram_credentials,
    "CreateAcls": create_acls,
    "CreateDelegationToken": create_delegation_token,
    "CreatePartitions": create_partitions,
    "CreateTopics": create_topics,
    "DeleteAcls": delete_acls,
    "DeleteGroups": delete_groups,
    "DeleteRecords": delete_records,
    "DeleteTopics": delete_topics,
    "ExpireDelegationToken": expire_delegation_token,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "Metadata": metadata,
    "OffsetDelete": offset_delete,
    "RenewDelegationToken": renew_delegation_token,
    "UpdateFeatures": update_features,
    "WriteTxnMarkers": write_txn_markers,
}


def test_each_administrative_api_has_a_scenario() -> None:
    assert SCENARIOS.keys() == ADMINISTRATIVE.keys()


@pytest.mark.parametrize("api", sorted(ADMINISTRATIVE))
def test_change_is_recorded(admin: Admin, api: str) -> None:
    client = {"principal": "User:admin", "host": "127.0.0.1", "listener": "SASL"}
    done = {"kind": "change", "api": api, "decision": "allowed"}
    expected = client | done | SCENARIOS[api](admin)

    def records() -> list[dict[str, Any]]:
        return [{k: v for k, v in e.items() if k != "time"} for e in admin.records(api)]

    wait_until(records, accepts=lambda found: expected in found)


def test_refused_change_is_recorded_with_its_reason(admin: Admin) -> None:
    admin.do("DeleteGroups", DeleteGroupsRequest(groups_names=["missing-group"]))

    def reasons() -> list[str]:
        entries = admin.records("DeleteGroups")
        return [
            entry["reason"] for entry in entries if entry["resource"]["name"] == "missing-group"
        ]

    wait_until(reasons, accepts=lambda found: found == ["GROUP_ID_NOT_FOUND"])
