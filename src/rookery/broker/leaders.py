"""Whom a client shall ask instead, while this broker is leaving (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from rookery.broker.call import Call
from rookery.cluster.state.brokers import LiveBroker
from rookery.cluster.state.topics import Topic


class Leader(NamedTuple):
    """The broker that leads a partition, and its epoch."""

    broker: LiveBroker
    leader_epoch: int


def other_leader(call: Call, topic: Topic, index: int) -> Leader | None:
    """Return who leads a partition, if that is another broker.

    Who will lead it after this broker is not told. A client believes in the highest epoch that it
    has heard of, and waits for ever for one that does not come because this broker was killed on
    its way out, and then came back.
    """
    partition = topic.partitions[index]
    broker = call.state.brokers.by_node.get(partition.leader)
    if broker is None or broker.node_id == call.services.node_id:
        return None
    return Leader(broker, partition.leader_epoch)
