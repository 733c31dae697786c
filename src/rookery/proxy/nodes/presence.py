"""Finds out which of the other instances can be reached.

An instance that does not accept connections is hidden from clients, and its partitions
move to the others. Two instances can differ about that for a moment. That is harmless, because each
of them serves every partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from rookery.model.address import Address
from rookery.proxy.nodes.instances import InstanceList

log = logging.getLogger(__name__)

PROBE_INTERVAL_MS: Final = 1_000
_TIMEOUT_SECONDS: Final = 1.0
# An instance is away after this many probes have failed, one after the other.
_FAILURES: Final = 3


class InstanceProbe:
    """Probes the other instances of a list."""

    def __init__(
        self,
        instances: InstanceList,
        is_reachable: Callable[[Address], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare the probe.

        Args:
            instances: the list to probe and to update.
            is_reachable: tries an address; by default it opens a connection.
        """
        self._instances = instances
        self._is_reachable = is_reachable or accepts_connections
        self._failures: dict[int, int] = {}

    async def run(self) -> None:
        """Probe all other instances once."""
        others = {
            node: where
            for node, where in self._instances.addresses.items()
            if node != self._instances.own_id
        }
        if not others:
            return
        reached = await asyncio.gather(*map(self._is_reachable, others.values()))
        for node, is_reached in zip(others, reached, strict=True):
            failures = 0 if is_reached else self._failures.get(node, 0) + 1
            self._note(node, others[node], failures)
            self._failures[node] = failures
        self._instances.set_away(
            {node for node, failures in self._failures.items() if failures >= _FAILURES}
        )

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
