"""Replaces the addresses of the upstream's brokers by those of the proxy.

`wire.endpoints` finds every address with a broker's id next to it. The two kinds of responses
without one are listed here: `tests/proxy/test_addresses.py` fails if an API has a host that no rule
covers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rookery.errors import ErrorCode
from rookery.model.address import Address
from rookery.wire.endpoints import has_endpoints, rewrite_endpoints
from rookery.wire.message import Api, Message
from rookery.wire.messages.describe_cluster import DescribeClusterResponse
from rookery.wire.messages.describe_quorum import DESCRIBE_QUORUM, DescribeQuorumResponse
from rookery.wire.messages.find_coordinator import FindCoordinatorResponse
from rookery.wire.messages.metadata import MetadataResponse

_NOWHERE: Final = Address("", -1)


def can_hold_addresses(api: Api[Any, Any]) -> bool:
    """Whether responses of an API can name hosts, so that `replace_addresses` must see them."""
    return has_endpoints(api.response) or api is DESCRIBE_QUORUM


def read_addresses(response: Message) -> dict[int, Address]:
    """Return the addresses in a response, by node id."""
    addresses: dict[int, Address] = {}

    def note(node_id: int, address: Address) -> Address:
        # An error has no broker: its id is -1, and its host is empty.
        if node_id >= 0 and address.host:
            addresses[node_id] = address
        return address

    rewrite_endpoints(response, note)
    return addresses


def replace_addresses(response: Message, find: Callable[[int], Address | None]) -> bool:
    """Replace the addresses of a response, in place; return whether anything has changed.

    Args:
        response: from the upstream.
        find: returns the proxy's address of a broker. One without is left out, as a broker that is
            away: clients cannot reach it, and must not go around the proxy.
    """
    has_changed = _leave_out(response, find)

    def replace(node_id: int, old: Address) -> Address:
        nonlocal has_changed
        # Without a host, as in errors, it stays as it came.
        new = find(node_id) or (_NOWHERE if old.host else old)
        has_changed = has_changed or new != old
        return new

    rewrite_endpoints(response, replace)
    if isinstance(response, DescribeQuorumResponse):
        # Controllers are not reachable through the proxy.
        for node in response.nodes:
            has_changed = has_changed or bool(node.listeners)
            node.listeners = []
    return has_changed


def _leave_out(response: Message, find: Callable[[int], Address | None]) -> bool:
    """Remove the brokers that have no address at the proxy; return whether there are any."""
    has_changed = False
    if isinstance(response, MetadataResponse):
        known = [each for each in response.brokers if find(each.node_id) is not None]
        has_changed = len(known) < len(response.brokers)
        response.brokers = known
    elif isinstance(response, DescribeClusterResponse):
        listed = [each for each in response.brokers if find(each.broker_id) is not None]
        has_changed = len(listed) < len(response.brokers)
        response.brokers = listed
    elif isinstance(response, FindCoordinatorResponse):
        coordinators: list[Any] = [response, *response.coordinators]
        for each in coordinators:
            if each.node_id >= 0 and find(each.node_id) is None:
                has_changed = True
                each.node_id, each.host, each.port = -1, "", -1
                each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                each.error_message = "the proxy has no port for this broker"
    return has_changed


def replace_hints(response: Any, find: Callable[[int], Address | None]) -> bool:
    """Replace the addresses of new leaders (KIP-951) in place; return whether there were any.

    A broker without an address here is left out. The client then asks for the metadata.
    """
    if not response.node_endpoints:
        return False
    response.node_endpoints = [
        hint for hint in response.node_endpoints if find(hint.node_id) is not None
    ]
    replace_addresses(response, find)
    return True
