"""Claims groups with members for this broker before a client asks for them.

The broker that holds a group's claim times its sessions. After a restart, or when the hash moves a
group to another broker, members that died in between never ask for it. Without a claim they would
stay members forever, and their offsets could be neither reset nor expired.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rookery.broker.groups.coordinator import GroupCoordinator
from rookery.broker.groups.subject import GroupSeat
from rookery.clock import Clock
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import Group
from rookery.errors import ApiError, ErrorCode
from rookery.service.looppace import LoopPace

# The number of claims per entry; each one decodes a group when the entry is applied.
_AT_ONCE: Final = 50


class GroupClaims:
    """Finds the groups of this broker that have no coordinator."""

    def __init__(self, groups: GroupCoordinator, replica: Replica, clock: Clock) -> None:
        self._groups = groups
        self._replica = replica
        self._clock = clock

    async def run(self) -> int:
        """Claim groups that may lack a coordinator; return the number of claims.

        Raises:
            Error: the cluster log is unreachable; the next run retries.
        """
        if not self._groups.may_lack_claims:
            return 0
        await self._replica.barrier()
        # Later changes are handled by the next run.
        self._groups.may_lack_claims = False
        try:
            return await self._claim_all()
        except Exception:
            self._groups.may_lack_claims = True
            raise

    async def _claim_all(self) -> int:
        pace, claimed = LoopPace(self._clock), 0
        batch: list[asyncio.Future[None]] = []
        for group in list(self._replica.state.groups):
            await pace.step()
            if self._lacks_claim(group):
                batch.append(self._groups.run(group.id, _claim_only))
            if len(batch) >= _AT_ONCE:
                claimed += await _settle(batch)
                batch = []
        return claimed + await _settle(batch)

    def _lacks_claim(self, group: Group) -> bool:
        if group.id in self._groups:
            return False
        summary = self._groups.summary(group)
        has_members = summary is not None and not summary.is_empty
        return has_members and self._groups.is_ours(group.id)


async def _settle(batch: list[asyncio.Future[None]]) -> int:
    """Wait for claims; return the number that succeeded."""
    results = await asyncio.gather(*batch, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures:
        is_moved = isinstance(failure, ApiError) and failure.code is ErrorCode.NOT_COORDINATOR
        if not is_moved:
            raise failure
    return len(results) - len(failures)


def _claim_only(_seat: GroupSeat) -> None:
    """Do nothing; the claim itself starts the timers."""
