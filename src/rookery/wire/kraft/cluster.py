"""Records of the metadata log about the cluster as a whole: settings, features, quotas, ids."""

from __future__ import annotations

from rookery.wire.message import BrokerId, Message, ProducerId, f64, field, i8, i16, i64


class ConfigRecord(Message, key=4, versions=range(1), flexible=0):
    """A setting of a topic, broker, group or the like was changed."""

    resource_type: i8  # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group
    resource_name: str  # empty for the default of all brokers
    name: str
    value: str | None  # null: back to the default


class FeatureLevelRecord(Message, key=12, versions=range(1), flexible=0):
    """A feature (such as metadata.version) has a new level."""

    name: str
    feature_level: i16  # 0: switched off


class ClientQuotaRecord(Message, key=14, versions=range(1), flexible=0):
    """A quota was set or removed."""

    entity: list[EntityData]
    key: str  # producer_byte_rate, consumer_byte_rate, request_percentage, …
    value: f64
    remove: bool


class EntityData(Message):
    """One part of whom a quota concerns: a user, a client id, an address."""

    entity_type: str  # user, client-id, ip
    entity_name: str | None  # null: every entity without a quota of its own


class ProducerIdsRecord(Message, key=15, versions=range(1), flexible=0):
    """A broker took a block of producer ids."""

    broker_id: BrokerId
    broker_epoch: i64 = -1
    next_producer_id: ProducerId  # the first id after the block


class NoOpRecord(Message, key=20, versions=range(1), flexible=0):
    """No change: the log advances, so that its followers can see that the leader is alive."""


class ZkMigrationStateRecord(Message, key=21, versions=range(1), flexible=0):
    """How far the move from ZooKeeper has come; old logs still hold it."""

    zk_migration_state: i8  # 0 none, 1 migration, 2 pre-migration, 3 post-migration


class BeginTransactionRecord(Message, key=23, versions=range(1), flexible=0):
    """The records from here on count only together, if at all (KIP-868)."""

    name: str | None = field(tag=0, default=None)


class EndTransactionRecord(Message, key=24, versions=range(1), flexible=0):
    """The records since BeginTransactionRecord count."""


class AbortTransactionRecord(Message, key=25, versions=range(1), flexible=0):
    """The records since BeginTransactionRecord do not count."""

    reason: str | None = field(tag=0, default=None)
