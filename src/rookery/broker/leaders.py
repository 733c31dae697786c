"""Whom a client shall ask instead, while this broker is leaving (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from rookery.broker.call import Call
from rookery.cluster.state.brokers import Broker
from rookery.cluster.state.topics import Topic, leader_of


class Successor(NamedTuple):
    """The broker that takes over a partition, and the epoch in which it will."""

    broker: Broker
    leader_epoch: int


def successor(call: Call, topic: Topic, index: int) -> Successor | None:
    """Return who leads a partition when this broker is gone; None if nobody is left."""
    partition, brokers = topic.partitions[index], call.state.brokers
    own = call.services.node_id
    if partition.leader != own:
        broker = brokers.by_node.get(partition.leader)
        return Successor(broker, partition.leader_epoch) if broker else None
    others = [node for node in brokers.nodes if node != own]
    broker = brokers.by_node.get(leader_of(topic.id, index, others))
    return Successor(broker, partition.leader_epoch + 1) if broker else None
