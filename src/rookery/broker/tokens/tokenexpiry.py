"""Removes delegation tokens whose time is over.

An expired token is useless from the moment it expires; its removal only frees the space. A proposal
contains the expiry that was seen, and it is void if the token was renewed since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.clock import Clock
from rookery.cluster.events.tokenevents import DelegationTokenExpired
from rookery.cluster.replica import Replica
from rookery.errors import ErrorCode
from rookery.wire.message import Message

# Other proposals need room in the entry too; the rest follows in the next run.
_AT_ONCE: Final = 200


class TokenExpiry:
    """Finds expired tokens by this broker's clock."""

    def __init__(self, replica: Replica, clock: Clock, is_due: Callable[[], bool]) -> None:
        """Prepare the search.

        Args:
            replica: read for tokens, and receives the proposals.
            clock: its wall-clock time decides.
            is_due: returns whether this broker does the work, and its clock can be trusted.
        """
        self._replica = replica
        self._clock = clock
        self._is_due = is_due

    async def run(self) -> int:
        """Remove expired tokens; return their number."""
        if not self._is_due() or not self._find_expired():
            return 0
        # They may have been renewed in entries that were not read here yet.
        await self._replica.barrier()
        outcomes = await self._replica.propose_all(self._find_expired()[:_AT_ONCE])
        return sum(outcome.error is ErrorCode.NONE for outcome in outcomes)

    def _find_expired(self) -> list[Message]:
        now_ms = self._clock.now_ms()
        return [
            DelegationTokenExpired(token_id=token_id, expires_ms=token.expires_ms)
            for token_id, token in self._replica.state.security.tokens.items()
            if token.is_expired(now_ms)
        ]
