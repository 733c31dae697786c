"""Finds out which of the other instances can be reached.

An instance that does not accept connections is hidden from clients, and its partitions
move to the others. Two instances can differ about that for a moment. That is harmless, because each
of them serves every partition.

An instance has an address for each listener. One that accepts connections suffices: the others may
lead through networks that the proxy does not use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from rookery.model.address import Address
from rookery.proxy.nodes.instances import InstanceList

log = logging.getLogger(__name__)

PROBE_INTERVAL_MS: Final = 1_000
_TIMEOUT_SECONDS: Final = 1.0
# An instance is away after this many probes have failed, one after the other.
_FAILURES: Final = 3


class InstanceProbe:
    """Probes the other instances of a virtual cluster."""

    def __init__(
        self,
        lists: Sequence[InstanceList],
        is_reachable: Callable[[Address], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare the probe.

        Args:
            lists: the instances with the addresses of each listener; all are updated.
            is_reachable: tries an address; by default it opens a connection.
        """
        self._lists = lists
        self._is_reachable = is_reachable or accepts_connections
        self._failures: dict[int, int] = {}

    async def run(self) -> None:
        """Probe all other instances once."""
        addresses = [
            (node, where)
            for each in self._lists
            for node, where in each.addresses.items()
            if node != each.own_id
        ]
        reached = await asyncio.gather(*(self._is_reachable(where) for _, where in addresses))
        present = {
            node for (node, _), is_reached in zip(addresses, reached, strict=True) if is_reached
        }
        for node, where in dict(reversed(addresses)).items():
            failures = 0 if node in present else self._failures.get(node, 0) + 1
            self._note(node, where, failures)
            self._failures[node] = failures
        away = {node for node, failures in self._failures.items() if failures >= _FAILURES}
        for each in self._lists:
            each.set_away(away)

    def _note(self, node: int, where: Address, failures: int) -> None:
        was_away = self._failures.get(node, 0) >= _FAILURES
        if failures == _FAILURES and not was_away:
            log.warning("instance %d at %s is away; clients use the others", node, where.text)
        elif was_away and not failures:
            log.info("instance %d at %s is back", node, where.text)


async def accepts_connections(where: Address) -> bool:
    """Return whether an address accepts connections."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(where.host, where.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
