"""Replaces the addresses of the upstream's brokers by those of the proxy.

`wire.endpoints` finds every address that has a broker's id beside it. The two kinds of responses
without one are listed here: `tests/proxy/test_addresses.py` fails if an API has a host that no rule
covers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rookery.model.address import Address
from rookery.wire.endpoints import rewrite_endpoints
from rookery.wire.message import Message
from rookery.wire.messages.describe_quorum import DescribeQuorumResponse


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


def replace_addresses(response: Message, find: Callable[[int], Address | None]) -> None:
    """Replace the addresses of a response, in place.

    Args:
        response: from the upstream.
        find: returns the proxy's address of a broker; None leaves what the upstream sent.
    """
    rewrite_endpoints(response, lambda node_id, address: find(node_id) or address)
    if isinstance(response, DescribeQuorumResponse):
        # Controllers are not reachable through the proxy.
        for node in response.nodes:
            node.listeners = []


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
