"""Checks whether the process of another broker still exists."""

from __future__ import annotations

import ipaddress

from rookery.broker.process.nodelock import NodeLock
from rookery.cluster.state.brokers import LiveBroker
from rookery.net.reach import Reach, reach


async def reach_broker(lock: NodeLock, broker: LiveBroker) -> Reach:
    """Check the lock of a broker on this host; otherwise try its address."""
    if lock.can_judge(broker.process_id):
        return Reach.OPEN if lock.is_held(broker.node_id) else Reach.REFUSED
    if _is_loopback(broker.host):
        return Reach.UNKNOWN  # the address belongs to another host or container
    return await reach(broker.host, broker.port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
