"""Events of the cluster's processes: registration, heartbeat, departure and expiry."""

from __future__ import annotations

from rookery.wire.message import BrokerId, Host, Message, Port, Uuid, field, i8, i16, i64


class ClusterCreated(Message, key=1, versions=range(1), flexible=0):
    """The log's first event: the cluster id and the initial feature level."""

    cluster_id: str
    feature_level: i16


class BrokerRegistered(Message, key=2, versions=range(1), flexible=0):
    """A broker joins; the number of the entry becomes its incarnation.

    It fences a live incarnation with the same node id, which is the same broker before a restart.
    """

    process_id: Uuid  # made by the process, so that it finds its own registration again
    node_id: BrokerId  # -1: the lowest that is free
    host: Host
    port: Port
    rack: str | None = None
    # From feature level 3 on: the address of each listener; empty if there is only one.
    endpoints: list[EndpointRow] = field(tag=0, factory=list)


class EndpointRow(Message):
    """The address of one listener of a broker."""

    listener: str
    protocol: i8  # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
    host: Host
    port: Port


class BrokerBeat(Message, key=3, versions=range(1), flexible=0):
    """A heartbeat of a process that has no other event to write."""


class BrokerLeft(Message, key=4, versions=range(1), flexible=0):
    """A process leaves; its incarnation writes no more entries."""


class BrokerExpired(Message, key=5, versions=range(1), flexible=0):
    """Another process has not seen an entry of an incarnation for too long.

    Void if the incarnation has written since, because the observer may have been suspended.
    """

    incarnation: i64
    last_sequence: i64


class FeatureLevelRaised(Message, key=6, versions=range(1), flexible=0):
    """Later entries are applied by the rules of a newer feature level."""

    feature_level: i16


class ConfigsChanged(Message, key=7, versions=range(1), flexible=0):
    """Settings of a topic, of one broker, or (with an empty name) of all brokers change."""

    resource_type: i16
    resource_name: str
    changes: list[SettingChange]
    # From feature level 2 on: void unless these are the resource's current explicit settings.
    is_conditional: bool = field(tag=0, default=False)
    observed: list[SettingChange] = field(tag=1, factory=list)


class SettingChange(Message):
    """One setting; null resets it to its default."""

    name: str
    value: str | None = field(default=None)


class ProcessRegistered(Message, key=8, versions=range(1), flexible=0):
    """A process that serves no clients joins, in order to write and commit objects.

    As with a broker, the number of the entry becomes its incarnation.
    """

    process_id: Uuid
    purpose: str
