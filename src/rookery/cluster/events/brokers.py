"""Events of the cluster's processes: they come, live, leave and expire."""

from __future__ import annotations

from rookery.wire.message import BrokerId, Host, Message, Port, Uuid, field, i16, i64


class ClusterCreated(Message, key=1, versions=range(1), flexible=0):
    """The log's first event: the cluster's name, and the rules its entries are applied by."""

    cluster_id: str
    feature_level: i16


class BrokerRegistered(Message, key=2, versions=range(1), flexible=0):
    """A process joins; the number of the entry that says so becomes its incarnation.

    A live incarnation with the same node id is fenced by this: it is the same broker, restarted.
    """

    process_id: Uuid  # made by the process, so that it finds its own registration again
    node_id: BrokerId  # -1: the lowest that is free
    host: Host
    port: Port
    rack: str | None = None


class BrokerBeat(Message, key=3, versions=range(1), flexible=0):
    """A process has nothing else to say, and is alive."""


class BrokerLeft(Message, key=4, versions=range(1), flexible=0):
    """A process goes; its incarnation will write no more."""


class BrokerExpired(Message, key=5, versions=range(1), flexible=0):
    """Another process has heard nothing of an incarnation for too long.

    Void if the incarnation has written since: the observer may have been the one that slept.
    """

    incarnation: i64
    last_sequence: i64


class FeatureLevelRaised(Message, key=6, versions=range(1), flexible=0):
    """Later entries are applied by the rules of a newer level."""

    feature_level: i16


class ConfigsChanged(Message, key=7, versions=range(1), flexible=0):
    """Settings of a topic, of one broker, or (with an empty name) of all brokers are changed."""

    resource_type: i16
    resource_name: str
    changes: list[SettingChange]
    # From feature level 2 on: void unless these are the settings that the resource has of its own.
    is_conditional: bool = field(tag=0, default=False)
    observed: list[SettingChange] = field(tag=1, factory=list)


class SettingChange(Message):
    """One setting; null takes it back to its default."""

    name: str
    value: str | None = field(default=None)


class ProcessRegistered(Message, key=8, versions=range(1), flexible=0):
    """A process that serves no clients joins, to write objects and commit them.

    As with a broker, the number of the entry becomes its incarnation.
    """

    process_id: Uuid
    purpose: str
