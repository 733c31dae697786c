"""Brokers and controllers in the metadata log."""

from __future__ import annotations

from rookery.wire.message import BrokerId, Host, Message, ShortPort, Uuid, field, i8, i16, i64


class RegisterBrokerRecord(Message, key=0, versions=range(5), flexible=0):
    """A broker has registered; it is fenced until it has caught up.

    Versions:
        1 knows brokers that are shutting down in good order.
        2 adds whether the broker is moving from ZooKeeper.
        3 adds the ids of its log directories (KIP-858).
        4 adds those directories that must get no new partitions (KIP-1066).
    """

    broker_id: BrokerId
    is_migrating_zk_broker: bool = field(since=2, default=False)
    incarnation_id: Uuid  # drawn again at every start of the process
    broker_epoch: i64  # the offset of this very record
    end_points: list[Endpoint]
    features: list[Feature]
    rack: str | None
    fenced: bool = True
    in_controlled_shutdown: bool = field(since=1, default=False)
    log_dirs: list[Uuid] = field(since=3, tag=0, factory=list)
    cordoned_log_dirs: list[Uuid] | None = field(since=4, tag=1, default=None)


class Endpoint(Message):
    """An address that a broker or controller listens on."""

    name: str
    host: Host
    port: ShortPort
    security_protocol: i16  # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL


class Feature(Message):
    """A feature with the levels that a broker or controller supports."""

    name: str
    min_supported_version: i16
    max_supported_version: i16


class UnregisterBrokerRecord(Message, key=1, versions=range(1), flexible=0):
    """A broker was removed for good."""

    broker_id: BrokerId
    broker_epoch: i64


class FenceBrokerRecord(Message, key=7, versions=range(1), flexible=0):
    """A broker must not lead until it is unfenced; older form of the change below."""

    id_: BrokerId
    epoch: i64


class UnfenceBrokerRecord(Message, key=8, versions=range(1), flexible=0):
    """A broker may lead again; older form of the change below."""

    id_: BrokerId
    epoch: i64


class BrokerRegistrationChangeRecord(Message, key=17, versions=range(4), flexible=0):
    """The changed fields of a broker's registration.

    Versions:
        1 knows brokers that are shutting down in good order.
        2 adds the ids of the log directories (KIP-858).
        3 adds those directories that must get no new partitions (KIP-1066).
    """

    broker_id: BrokerId
    broker_epoch: i64
    fenced: i8 = field(tag=0, default=0)  # 1: now fenced, -1: no longer, 0: unchanged
    in_controlled_shutdown: i8 = field(since=1, tag=1, default=0)  # 1: now, 0: unchanged
    log_dirs: list[Uuid] = field(since=2, tag=2, factory=list)  # none: unchanged
    cordoned_log_dirs: list[Uuid] | None = field(since=3, tag=3, default=None)  # null: unchanged


class RegisterControllerRecord(Message, key=27, versions=range(1), flexible=0):
    """A controller has registered (KIP-919)."""

    controller_id: BrokerId  # controllers and brokers share one space of node ids
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: list[Endpoint]
    features: list[Feature]
