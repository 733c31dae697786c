"""Checks whether the process of another broker still exists, or has certainly ended."""

from __future__ import annotations

import ipaddress

from rookery.broker.process.nodelock import NodeLock
from rookery.cluster.state.brokers import Brokers, LiveBroker
from rookery.net.reach import Reach, reach


async def reach_broker(lock: NodeLock, broker: LiveBroker) -> Reach:
    """Check the lock of a broker on this host; otherwise try its address."""
    if lock.can_judge(broker.process_id):
        return Reach.OPEN if lock.is_held(broker.node_id) else Reach.REFUSED
    if _is_loopback(broker.host):
        return Reach.UNKNOWN  # the address belongs to another host or container
    return await reach(broker.host, broker.port)


def has_ended(lock: NodeLock, broker: LiveBroker, brokers: Brokers) -> bool:
    """Return whether it is certain that the process of a broker that is not live has ended.

    A refused connection proves nothing: a firewall, a proxy or a limit can cause it.
    """
    if not lock.can_judge(broker.process_id):
        return False
    successor = brokers.by_node.get(broker.node_id)
    # A process of this host registers with a node id only when it has its lock.
    has_lost_lock = successor is not None and lock.can_judge(successor.process_id)
    return has_lost_lock or not lock.is_held(broker.node_id)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
