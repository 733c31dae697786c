"""Refuses a node id that a live broker has, before this process registers with it.

owner with our lock file    its lock decides at once: a killed broker comes back without a wait
any other owner             an entry that it writes proves that it lives; after some beats of
                            silence it is dead if nothing listens at its address, after a
                            session in any case
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rookery.broker.process.liveness import reach_broker
from rookery.broker.process.membership import SUSPECT_BEATS
from rookery.broker.process.nodelock import NodeLock
from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.replica import Replica
from rookery.cluster.state.brokers import LiveBroker
from rookery.errors import ConfigError
from rookery.net.reach import Reach

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.05


class NodeClaim:
    """Decides whether this process can register with a node id."""

    def __init__(
        self, replica: Replica, clock: Clock, lock: NodeLock, settings: BrokerSettings
    ) -> None:
        self._replica = replica
        self._clock = clock
        self._lock = lock
        self._session_ms = settings.session_timeout_ms
        self._suspect_ms = int(settings.beat_interval_ms * SUSPECT_BEATS)

    async def claim(self, node_id: int) -> None:
        """Return when the node id has no live owner.

        Raises:
            ConfigError: a live broker owns it.
        """
        owner = self._replica.state.brokers.by_node.get(node_id)
        if owner is not None and not self._lock.can_judge(owner.process_id):
            await self._await_silence(owner)
        if not self._lock.hold(node_id):
            where = f"at {owner.host}:{owner.port}" if owner else "that is starting or stopping"
            raise _in_use(node_id, f"another process of this host {where}")

    async def _await_silence(self, owner: LiveBroker) -> None:
        sequence = self._sequence(owner)
        began_ms = self._clock.monotonic_ms()
        log.info(
            "node id %d is registered by a broker at %s:%d; waiting up to %g s to see whether it "
            "is alive",
            owner.node_id,
            owner.host,
            owner.port,
            self._session_ms / 1000,
        )
        is_over = False
        while not is_over:
            await asyncio.sleep(_LOOK_SECONDS)
            is_over = await self._is_dead(owner, self._clock.monotonic_ms() - began_ms)
            if is_over:
                # The owner's latest entries may not have been read here yet.
                await self._replica.barrier()
            now = self._sequence(owner)
            if now is None:
                return
            if now != sequence:
                raise _in_use(owner.node_id, f"the live broker at {owner.host}:{owner.port}")

    async def _is_dead(self, owner: LiveBroker, silent_ms: int) -> bool:
        if silent_ms < min(self._suspect_ms, self._session_ms):
            return False
        if silent_ms >= self._session_ms:
            return True
        return await reach_broker(self._lock, owner) is Reach.REFUSED

    def _sequence(self, owner: LiveBroker) -> int | None:
        return self._replica.state.brokers.sequences.get(owner.incarnation)


def _in_use(node_id: int, owner: str) -> ConfigError:
    return ConfigError(
        f"node id {node_id} is in use by {owner}; give each broker its own --node-id and "
        "--advertise address, or stop that one first"
    )
