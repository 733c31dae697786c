"""The limit for unread responses, shared by all connections of a broker.

Every response is added when it is created, or when it is promised before it is read from disk. The
bytes sent since are found by recounting, which happens only when the sum looks too high:

    plenty ──► short: responses get smaller, clients that read nothing for a long time are closed
                 └──► full: large responses wait, clients that read nothing are closed soon
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, NamedTuple, Protocol

from rookery.clock import loop_seconds

log = logging.getLogger(__name__)

DEFAULT_BYTES: Final = 256 * 1024 * 1024
DEFAULT_PATIENCE_MS: Final = 30_000
# A response gets at most this share of the remaining budget, so that later responses get some too.
_SHARE: Final = 4
# The size limit of a response when nothing is left: clients that read are still served, in small
# portions.
_LEAST_BYTES: Final = 64 * 1024
# When the budget is full, a response is expected to need this much.
_USUAL_BYTES: Final = 1024 * 1024
# A client that has read less than this between two checks counts as not reading.
_PROGRESS_BYTES: Final = 64 * 1024
_CHECK_SECONDS: Final = 0.25
_FULL_PATIENCE_SECONDS: Final = 2.0
# A recount is worthwhile after this long, or when this share of the limit was added.
_RECOUNT_SECONDS: Final = 0.1
_RECOUNT_SHARE: Final = 16


class Holder(Protocol):
    """The interface of a connection for accounting its responses."""

    peer: str

    @property
    def held_bytes(self) -> int:
        """Bytes of responses that were created or promised, and not sent."""

    @property
    def unread_bytes(self) -> int:
        """Those of the held bytes that the client can read now."""

    @property
    def sent_bytes(self) -> int:
        """The total of bytes that the client's side has accepted."""

    def abort(self) -> None:
        """Close immediately."""


class _Mark(NamedTuple):
    """How much a client had read, and when it was last seen to read."""

    sent: int
    since: float


class AnswerBudget:
    """Counts responses until they are sent, and limits the size of the next one."""

    def __init__(self, limit: int = DEFAULT_BYTES, patience_ms: int = DEFAULT_PATIENCE_MS) -> None:
        self.limit = limit
        self.used = 0
        """An upper bound of the held bytes; exact right after a recount."""
        self.cut_off = 0
        """The number of connections that were closed because they did not read."""
        self._patience = patience_ms / 1000
        self._holders: dict[Holder, None] = {}
        self._counted = 0
        self._counted_at = 0.0
        self._marks: dict[Holder, _Mark] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        # When the timer is due.
        self._check_at = 0.0

    @property
    def is_full(self) -> bool:
        """Whether large responses should wait."""
        if self.used < self._full:
            return False
        self._recount()
        return self.used >= self._full

    def add(self, count: int) -> None:
        """Add bytes that were created or promised."""
        self.used += count

    def room(self) -> int:
        """Return the maximum size of the next response."""
        if self.used * 2 > self.limit:
            self._recount()
        return max((self.limit - self.used) // _SHARE, _LEAST_BYTES)

    async def wait(self) -> None:
        """Return when the budget is not full, in order of arrival."""
        while self.is_full:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def join(self, holder: Holder) -> None:
        """Add a connection to the accounting."""
        self._holders[holder] = None

    def leave(self, holder: Holder) -> None:
        """Remove a closed connection and the bytes it held."""
        self._holders.pop(holder, None)
        self._marks.pop(holder, None)

    @property
    def _full(self) -> int:
        return self.limit + self.limit // 4

    def _recount(self) -> None:
        """Recount, unless that was done just now; if the budget is short, keep checking."""
        loop = asyncio.get_running_loop()
        grown = self.used - self._counted
        if (
            grown * _RECOUNT_SHARE >= self.limit
            or loop_seconds() - self._counted_at >= _RECOUNT_SECONDS
        ):
            self._count(loop_seconds())
        if self.used > self.limit and self._timer is None:
            self._check_later(loop)

    def _check_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._check_at = loop_seconds() + _CHECK_SECONDS
        self._timer = loop.call_later(_CHECK_SECONDS, self._check_clients)

    def _count(self, now: float) -> None:
        self.used = self._counted = sum(holder.held_bytes for holder in self._holders)
        self._counted_at = now

    def _check_clients(self) -> None:
        """Check which clients read, close those that do not, and wake waiters."""
        loop = asyncio.get_running_loop()
        self._timer = None
        self._count(loop_seconds())
        if self.used > self.limit:
            self._forgive(loop_seconds() - self._check_at)
            self._cut_off(loop_seconds())
        else:
            self._marks.clear()
        self._wake()
        if self.used > self.limit or self._waiting:
            self._check_later(loop)

    def _forgive(self, late: float) -> None:
        """Charge no client for time in which this process itself did not run."""
        if late > _CHECK_SECONDS:
            self._marks = {
                holder: mark._replace(since=mark.since + late)
                for holder, mark in self._marks.items()
            }

    def _cut_off(self, now: float) -> None:
        """Close clients that have not read for too long, the largest first, until it is enough."""
        is_full = self.used >= self._full
        patience = min(self._patience, _FULL_PATIENCE_SECONDS) if is_full else self._patience
        stuck = [
            holder for holder in self._holders if now - self._mark(holder, now).since >= patience
        ]
        for holder in sorted(stuck, key=lambda holder: holder.held_bytes, reverse=True):
            if self.used <= self.limit:
                return
            held = holder.held_bytes
            log.warning(
                "closing a connection: it holds %d bytes of responses that it has not read for "
                "%.1f s, and all together hold %d of %d",
                held,
                patience,
                self.used,
                self.limit,
                extra={"client": holder.peer},
            )
            self.cut_off += 1
            self.used -= held
            self.leave(holder)
            holder.abort()

    def _mark(self, holder: Holder, now: float) -> _Mark:
        """Return when a client was last seen to read; one with nothing to read counts as reading.

        A promised response is not ready yet: its client can only wait for it.
        """
        sent, mark = holder.sent_bytes, self._marks.get(holder)
        if (
            mark is None
            or sent - mark.sent >= _PROGRESS_BYTES
            or holder.unread_bytes < _PROGRESS_BYTES
        ):
            mark = self._marks[holder] = _Mark(sent, now)
        return mark

    def _wake(self) -> None:
        """Wake as many waiters as there is room for."""
        room = self._full - self.used
        while self._waiting and room > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= _USUAL_BYTES
