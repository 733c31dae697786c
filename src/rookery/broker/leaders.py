"""The leader to redirect a client to while this broker is leaving (KIP-951)."""

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
    """Return the leader of a partition if it is another broker.

    The future leader after this broker's departure is never reported. A client trusts the highest
    epoch that it has seen. If this broker were killed while leaving and came back, the client would
    wait forever for that epoch.
    """
    partition = topic.partitions[index]
    broker = call.reachable(call.state.brokers.by_node.get(partition.leader))
    if broker is None or broker.node_id == call.services.node_id:
        return None
    return Leader(broker, partition.leader_epoch)
