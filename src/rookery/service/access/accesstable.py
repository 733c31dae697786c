"""The operations that clients need for each API, and on which resources.

Brokers and proxies decide by this table; docs/acls.md is made from it. An API without a row needs
no permission if it is one of `OPEN_APIS`, and is refused otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rookery.security.access import (
    Access,
    AclResource,
    Denial,
    Operation,
    acting_for,
    any_of,
    cluster,
    created,
    listed,
    named,
    needing_name,
)
from rookery.service.access import requesttraits
from rookery.wire.message import Api
from rookery.wire.messages.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from rookery.wire.messages.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from rookery.wire.messages.add_raft_voter import ADD_RAFT_VOTER
from rookery.wire.messages.alter_client_quotas import ALTER_CLIENT_QUOTAS
from rookery.wire.messages.alter_configs import ALTER_CONFIGS
from rookery.wire.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from rookery.wire.messages.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from rookery.wire.messages.alter_share_group_offsets import ALTER_SHARE_GROUP_OFFSETS
from rookery.wire.messages.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from rookery.wire.messages.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from rookery.wire.messages.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from rookery.wire.messages.create_acls import CREATE_ACLS
from rookery.wire.messages.create_delegation_token import CREATE_DELEGATION_TOKEN
from rookery.wire.messages.create_partitions import CREATE_PARTITIONS
from rookery.wire.messages.create_topics import CREATE_TOPICS
from rookery.wire.messages.delete_acls import DELETE_ACLS
from rookery.wire.messages.delete_groups import DELETE_GROUPS
from rookery.wire.messages.delete_records import DELETE_RECORDS
from rookery.wire.messages.delete_share_group_offsets import DELETE_SHARE_GROUP_OFFSETS
from rookery.wire.messages.delete_topics import DELETE_TOPICS
from rookery.wire.messages.describe_acls import DESCRIBE_ACLS
from rookery.wire.messages.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from rookery.wire.messages.describe_cluster import DESCRIBE_CLUSTER
from rookery.wire.messages.describe_configs import DESCRIBE_CONFIGS
from rookery.wire.messages.describe_delegation_token import DESCRIBE_DELEGATION_TOKEN
from rookery.wire.messages.describe_groups import DESCRIBE_GROUPS
from rookery.wire.messages.describe_log_dirs import DESCRIBE_LOG_DIRS
from rookery.wire.messages.describe_producers import DESCRIBE_PRODUCERS
from rookery.wire.messages.describe_quorum import DESCRIBE_QUORUM
from rookery.wire.messages.describe_share_group_offsets import DESCRIBE_SHARE_GROUP_OFFSETS
from rookery.wire.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from rookery.wire.messages.describe_transactions import DESCRIBE_TRANSACTIONS
from rookery.wire.messages.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from rookery.wire.messages.elect_leaders import ELECT_LEADERS
from rookery.wire.messages.end_txn import END_TXN
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR
from rookery.wire.messages.heartbeat import HEARTBEAT
from rookery.wire.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID
from rookery.wire.messages.join_group import JOIN_GROUP
from rookery.wire.messages.leave_group import LEAVE_GROUP
from rookery.wire.messages.list_config_resources import LIST_CONFIG_RESOURCES
from rookery.wire.messages.list_groups import LIST_GROUPS
from rookery.wire.messages.list_offsets import LIST_OFFSETS
from rookery.wire.messages.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from rookery.wire.messages.list_transactions import LIST_TRANSACTIONS
from rookery.wire.messages.metadata import METADATA
from rookery.wire.messages.offset_commit import OFFSET_COMMIT
from rookery.wire.messages.offset_delete import OFFSET_DELETE
from rookery.wire.messages.offset_fetch import OFFSET_FETCH
from rookery.wire.messages.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from rookery.wire.messages.produce import PRODUCE
from rookery.wire.messages.remove_raft_voter import REMOVE_RAFT_VOTER
from rookery.wire.messages.share_acknowledge import SHARE_ACKNOWLEDGE
from rookery.wire.messages.share_fetch import SHARE_FETCH
from rookery.wire.messages.share_group_describe import SHARE_GROUP_DESCRIBE
from rookery.wire.messages.share_group_heartbeat import SHARE_GROUP_HEARTBEAT
from rookery.wire.messages.streams_group_describe import STREAMS_GROUP_DESCRIBE
from rookery.wire.messages.streams_group_heartbeat import STREAMS_GROUP_HEARTBEAT
from rookery.wire.messages.sync_group import SYNC_GROUP
from rookery.wire.messages.txn_offset_commit import TXN_OFFSET_COMMIT
from rookery.wire.messages.unregister_broker import UNREGISTER_BROKER
from rookery.wire.messages.update_features import UPDATE_FEATURES
from rookery.wire.messages.write_txn_markers import WRITE_TXN_MARKERS

_FROM_CLIENTS: Final = range(4)
_FROM_BROKERS: Final = range(4, ADD_PARTITIONS_TO_TXN.versions.stop)
_WITH_SHARES: Final = range(6, FIND_COORDINATOR.versions.stop)

# What several APIs need.
_ALTERED_CONFIGS: Final = (
    named(AclResource.TOPIC, Operation.ALTER_CONFIGS),
    named(AclResource.GROUP, Operation.ALTER_CONFIGS),
    named(AclResource.CLUSTER, Operation.ALTER_CONFIGS),
)
_DELETED_OFFSETS: Final = (
    named(AclResource.GROUP, Operation.DELETE),
    named(AclResource.TOPIC, Operation.READ),
)
_FETCHED_OFFSETS: Final = (
    named(AclResource.GROUP, Operation.DESCRIBE),
    named(AclResource.TOPIC, Operation.DESCRIBE),
    listed(AclResource.TOPIC, Operation.DESCRIBE),
)
_GROUP_OFFSETS: Final = (
    named(AclResource.GROUP, Operation.READ),
    named(AclResource.TOPIC, Operation.READ),
)
_GROUP_WITH_ITS_TOPICS: Final = (
    named(AclResource.GROUP, Operation.DESCRIBE),
    listed(AclResource.TOPIC, Operation.DESCRIBE),
)
_GROUP_WITH_SUBSCRIPTION: Final = (
    named(AclResource.GROUP, Operation.READ),
    named(AclResource.TOPIC, Operation.DESCRIBE, denial=Denial.REFUSE_REQUEST),
)

_ROWS: Final[Mapping[int, tuple[Access, ...]]] = {
    ADD_OFFSETS_TO_TXN.key: (
        named(AclResource.TRANSACTIONAL_ID, Operation.WRITE),
        named(AclResource.GROUP, Operation.READ),
    ),
    ADD_PARTITIONS_TO_TXN.key: (
        named(AclResource.TRANSACTIONAL_ID, Operation.WRITE, versions=_FROM_CLIENTS),
        named(
            AclResource.TOPIC, Operation.WRITE, denial=Denial.REFUSE_REQUEST, versions=_FROM_CLIENTS
        ),
        cluster(Operation.CLUSTER_ACTION, versions=_FROM_BROKERS),
    ),
    ALTER_CLIENT_QUOTAS.key: (cluster(Operation.ALTER_CONFIGS),),
    ALTER_CONFIGS.key: _ALTERED_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS.key: (cluster(Operation.ALTER),),
    ALTER_USER_SCRAM_CREDENTIALS.key: (cluster(Operation.ALTER),),
    CONSUMER_GROUP_DESCRIBE.key: (
        named(AclResource.GROUP, Operation.DESCRIBE),
        listed(AclResource.TOPIC, Operation.DESCRIBE, denial=Denial.REFUSE),
    ),
    CONSUMER_GROUP_HEARTBEAT.key: _GROUP_WITH_SUBSCRIPTION,
    CREATE_ACLS.key: (cluster(Operation.ALTER),),
    CREATE_DELEGATION_TOKEN.key: (
        acting_for(Operation.CREATE_TOKENS, when=requesttraits.names_owner),
    ),
    CREATE_PARTITIONS.key: (named(AclResource.TOPIC, Operation.ALTER),),
    CREATE_TOPICS.key: (
        named(AclResource.TOPIC, Operation.CREATE, or_on_cluster=Operation.CREATE),
        named(AclResource.TOPIC, Operation.DESCRIBE_CONFIGS, denial=Denial.REDACT),
    ),
    DELETE_ACLS.key: (cluster(Operation.ALTER),),
    DELETE_GROUPS.key: (named(AclResource.GROUP, Operation.DELETE),),
    DELETE_RECORDS.key: (named(AclResource.TOPIC, Operation.DELETE),),
    DELETE_TOPICS.key: (
        named(AclResource.TOPIC, Operation.DELETE, or_on_cluster=Operation.DELETE),
    ),
    DESCRIBE_ACLS.key: (cluster(Operation.DESCRIBE),),
    DESCRIBE_CLIENT_QUOTAS.key: (cluster(Operation.DESCRIBE_CONFIGS),),
    DESCRIBE_CLUSTER.key: (
        cluster(Operation.DESCRIBE, denial=Denial.REDACT, when=requesttraits.asks_for_operations),
    ),
    DESCRIBE_CONFIGS.key: (
        named(AclResource.TOPIC, Operation.DESCRIBE_CONFIGS),
        named(AclResource.GROUP, Operation.DESCRIBE_CONFIGS),
        named(AclResource.CLUSTER, Operation.DESCRIBE_CONFIGS),
    ),
    DESCRIBE_DELEGATION_TOKEN.key: (
        listed(
            AclResource.DELEGATION_TOKEN,
            Operation.DESCRIBE,
            or_on_owner=Operation.DESCRIBE_TOKENS,
            is_own_exempt=True,
        ),
    ),
    DESCRIBE_GROUPS.key: (named(AclResource.GROUP, Operation.DESCRIBE),),
    DESCRIBE_LOG_DIRS.key: (cluster(Operation.DESCRIBE),),
    DESCRIBE_PRODUCERS.key: (named(AclResource.TOPIC, Operation.READ),),
    DESCRIBE_QUORUM.key: (cluster(Operation.DESCRIBE),),
    DESCRIBE_TOPIC_PARTITIONS.key: (
        named(AclResource.TOPIC, Operation.DESCRIBE),
        listed(AclResource.TOPIC, Operation.DESCRIBE),
    ),
    DESCRIBE_TRANSACTIONS.key: (
        named(AclResource.TRANSACTIONAL_ID, Operation.DESCRIBE),
        listed(AclResource.TOPIC, Operation.DESCRIBE),
    ),
    DESCRIBE_USER_SCRAM_CREDENTIALS.key: (cluster(Operation.DESCRIBE),),
    ELECT_LEADERS.key: (cluster(Operation.ALTER),),
    END_TXN.key: (named(AclResource.TRANSACTIONAL_ID, Operation.WRITE),),
    FETCH.key: (
        named(AclResource.TOPIC, Operation.READ, when=requesttraits.is_consumer),
        cluster(Operation.CLUSTER_ACTION, denial=Denial.REFUSE, when=requesttraits.is_replica),
    ),
    FIND_COORDINATOR.key: (
        named(AclResource.GROUP, Operation.DESCRIBE),
        named(AclResource.TRANSACTIONAL_ID, Operation.DESCRIBE),
        cluster(Operation.CLUSTER_ACTION, versions=_WITH_SHARES, when=requesttraits.is_for_shares),
    ),
    HEARTBEAT.key: (named(AclResource.GROUP, Operation.READ),),
    INCREMENTAL_ALTER_CONFIGS.key: _ALTERED_CONFIGS,
    INIT_PRODUCER_ID.key: (
        named(AclResource.TRANSACTIONAL_ID, Operation.WRITE),
        any_of(
            AclResource.TOPIC,
            Operation.WRITE,
            or_on_cluster=Operation.IDEMPOTENT_WRITE,
            when=requesttraits.is_only_idempotent,
        ),
    ),
    JOIN_GROUP.key: (named(AclResource.GROUP, Operation.READ),),
    LEAVE_GROUP.key: (named(AclResource.GROUP, Operation.READ),),
    LIST_CONFIG_RESOURCES.key: (cluster(Operation.DESCRIBE_CONFIGS),),
    LIST_GROUPS.key: (
        listed(AclResource.GROUP, Operation.DESCRIBE, or_on_cluster=Operation.DESCRIBE),
    ),
    LIST_OFFSETS.key: (named(AclResource.TOPIC, Operation.DESCRIBE),),
    LIST_PARTITION_REASSIGNMENTS.key: (cluster(Operation.DESCRIBE),),
    LIST_TRANSACTIONS.key: (listed(AclResource.TRANSACTIONAL_ID, Operation.DESCRIBE),),
    METADATA.key: (
        named(AclResource.TOPIC, Operation.DESCRIBE),
        listed(AclResource.TOPIC, Operation.DESCRIBE),
        created(when=requesttraits.may_create),
        cluster(Operation.DESCRIBE, denial=Denial.REDACT, when=requesttraits.asks_for_operations),
    ),
    OFFSET_COMMIT.key: _GROUP_OFFSETS,
    OFFSET_DELETE.key: _DELETED_OFFSETS,
    OFFSET_FETCH.key: _FETCHED_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH.key: (
        named(AclResource.TOPIC, Operation.DESCRIBE, or_on_cluster=Operation.CLUSTER_ACTION),
    ),
    PRODUCE.key: (
        needing_name(
            named(
                AclResource.TRANSACTIONAL_ID, Operation.WRITE, when=requesttraits.is_transactional
            )
        ),
        named(AclResource.TOPIC, Operation.WRITE),
    ),
    SYNC_GROUP.key: (named(AclResource.GROUP, Operation.READ),),
    TXN_OFFSET_COMMIT.key: (
        named(AclResource.TRANSACTIONAL_ID, Operation.WRITE),
        *_GROUP_OFFSETS,
    ),
    UPDATE_FEATURES.key: (cluster(Operation.ALTER),),
    WRITE_TXN_MARKERS.key: (cluster(Operation.ALTER, or_on_cluster=Operation.CLUSTER_ACTION),),
}
# A broker of ours does not answer these; Kafka does, through a proxy.
_KAFKA_ROWS: Final[Mapping[int, tuple[Access, ...]]] = {
    ADD_RAFT_VOTER.key: (cluster(Operation.ALTER),),
    REMOVE_RAFT_VOTER.key: (cluster(Operation.ALTER),),
    UNREGISTER_BROKER.key: (cluster(Operation.ALTER),),
    ALTER_REPLICA_LOG_DIRS.key: (cluster(Operation.ALTER),),
    SHARE_FETCH.key: _GROUP_OFFSETS,
    SHARE_ACKNOWLEDGE.key: _GROUP_OFFSETS,
    SHARE_GROUP_HEARTBEAT.key: _GROUP_WITH_SUBSCRIPTION,
    SHARE_GROUP_DESCRIBE.key: _GROUP_WITH_ITS_TOPICS,
    DESCRIBE_SHARE_GROUP_OFFSETS.key: _FETCHED_OFFSETS,
    ALTER_SHARE_GROUP_OFFSETS.key: _GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS.key: _DELETED_OFFSETS,
    STREAMS_GROUP_HEARTBEAT.key: _GROUP_WITH_SUBSCRIPTION,
    STREAMS_GROUP_DESCRIBE.key: _GROUP_WITH_ITS_TOPICS,
}


def access_of(api: Api[Any, Any]) -> tuple[Access, ...]:
    """Return what the client of an API needs; nothing for an API that is not in the table."""
    return _ROWS.get(api.key) or _KAFKA_ROWS.get(api.key, ())
