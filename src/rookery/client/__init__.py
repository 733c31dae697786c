"""A small asyncio client for any Kafka cluster; the guide is docs/guide/client.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.client.admin import Admin, ClusterDescription, NewTopic
    from rookery.client.client import Client
    from rookery.client.configs import ConfigChange, ConfigEntry, ConfigOperation, ResourceType
    from rookery.client.fetch import FetchedBatch, FetchResult, FetchSettings, Isolation
    from rookery.client.groups import GroupListing
    from rookery.client.members import GroupDescription, MemberDescription
    from rookery.client.offsets import ListedOffset
    from rookery.client.produce.producer import Producer
    from rookery.client.produce.producerbatch import Delivery, RecordLocation
    from rookery.client.produce.transactions import TransactionalWriter
    from rookery.client.settings import (
        ACKS_ALL,
        ACKS_LEADER,
        ACKS_NONE,
        ClientSettings,
        ProducerSettings,
        Sasl,
    )
    from rookery.client.views.brokers import (
        BrokerOverview,
        ClusterOverview,
        LogDirOverview,
        describe_cluster,
        list_log_dirs,
        partition_sizes,
    )
    from rookery.client.views.configs import ConfigOverview, describe_configs
    from rookery.client.views.groups import (
        GroupOverview,
        MemberOverview,
        PartitionLag,
        describe_groups,
        list_groups,
    )
    from rookery.client.views.topics import (
        PartitionOverview,
        TopicOverview,
        TopicSummary,
        describe_topics,
        list_topics,
    )
    from rookery.client.views.transactions import (
        ProducerOverview,
        TransactionOverview,
        describe_transaction,
        list_producers,
        list_transactions,
        open_transactions,
    )
    from rookery.model.offset import EARLIEST, LATEST, MAX_TIMESTAMP, CommittedOffset
    from rookery.model.partition import TopicPartition
    from rookery.records.recordcodec import Record
    from rookery.security.tls import ClientTls

__all__ = [
    "ACKS_ALL",
    "ACKS_LEADER",
    "ACKS_NONE",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "BrokerOverview",
    "Client",
    "ClientSettings",
    "ClientTls",
    "ClusterDescription",
    "ClusterOverview",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigOverview",
    "Delivery",
    "FetchResult",
    "FetchSettings",
    "FetchedBatch",
    "GroupDescription",
    "GroupListing",
    "GroupOverview",
    "Isolation",
    "ListedOffset",
    "LogDirOverview",
    "MemberDescription",
    "MemberOverview",
    "NewTopic",
    "PartitionLag",
    "PartitionOverview",
    "Producer",
    "ProducerOverview",
    "ProducerSettings",
    "Record",
    "RecordLocation",
    "ResourceType",
    "Sasl",
    "TopicOverview",
    "TopicPartition",
    "TopicSummary",
    "TransactionOverview",
    "TransactionalWriter",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_topics",
    "describe_transaction",
    "list_groups",
    "list_log_dirs",
    "list_producers",
    "list_topics",
    "list_transactions",
    "open_transactions",
    "partition_sizes",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.client.admin": ["Admin", "ClusterDescription", "NewTopic"],
            "rookery.client.client": ["Client"],
            "rookery.client.configs": [
                "ConfigChange",
                "ConfigEntry",
                "ConfigOperation",
                "ResourceType",
            ],
            "rookery.client.fetch": ["FetchResult", "FetchSettings", "FetchedBatch", "Isolation"],
            "rookery.client.groups": ["GroupListing"],
            "rookery.client.members": ["GroupDescription", "MemberDescription"],
            "rookery.client.offsets": ["ListedOffset"],
            "rookery.client.produce.producer": ["Producer"],
            "rookery.client.produce.producerbatch": ["Delivery", "RecordLocation"],
            "rookery.client.produce.transactions": ["TransactionalWriter"],
            "rookery.client.settings": [
                "ACKS_ALL",
                "ACKS_LEADER",
                "ACKS_NONE",
                "ClientSettings",
                "ProducerSettings",
                "Sasl",
            ],
            "rookery.client.views.brokers": [
                "BrokerOverview",
                "ClusterOverview",
                "LogDirOverview",
                "describe_cluster",
                "list_log_dirs",
                "partition_sizes",
            ],
            "rookery.client.views.configs": ["ConfigOverview", "describe_configs"],
            "rookery.client.views.groups": [
                "GroupOverview",
                "MemberOverview",
                "PartitionLag",
                "describe_groups",
                "list_groups",
            ],
            "rookery.client.views.topics": [
                "PartitionOverview",
                "TopicOverview",
                "TopicSummary",
                "describe_topics",
                "list_topics",
            ],
            "rookery.client.views.transactions": [
                "ProducerOverview",
                "TransactionOverview",
                "describe_transaction",
                "list_producers",
                "list_transactions",
                "open_transactions",
            ],
            "rookery.model.offset": ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "CommittedOffset"],
            "rookery.model.partition": ["TopicPartition"],
            "rookery.records.recordcodec": ["Record"],
            "rookery.security.tls": ["ClientTls"],
        },
    )
