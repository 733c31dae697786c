"""Retries: which errors to retry, how long to pause, and when to give up.

A call has one deadline for everything it does: find a leader, connect, send, wait, retry. The type
of an error determines whether a retry can help. At the deadline, the last error is the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rookery.client.settings import ClientSettings
from rookery.clock import Clock, Random
from rookery.errors import ApiError, Error, Unavailable

T = TypeVar("T")


class Deadline:
    """The time by which something must be done."""

    __slots__ = ("_clock", "at_ms", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.timeout_ms = timeout_ms
        self.at_ms = clock.monotonic_ms() + timeout_ms

    @property
    def left_ms(self) -> int:
        """The time left; 0 if none."""
        return max(0, self.at_ms - self._clock.monotonic_ms())

    def cap(self, ms: int) -> int:
        """Return a duration that ends at the deadline at the latest; at least 1."""
        return max(1, min(ms, self.left_ms))


class PersistentError(ApiError):
    """An error that is retriable at first, but has persisted for too long."""


def may_retry(error: Error) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, PersistentError):
        return False
    if isinstance(error, ApiError):
        return error.code.retriable
    return isinstance(error, Unavailable)


def is_stale(error: Error) -> bool:
    """Return whether the error means that the cluster metadata may be stale."""
    if isinstance(error, ApiError):
        return error.code.stale_metadata
    return isinstance(error, Unavailable)


class ClientRetrier:
    """Retries with growing pauses until a deadline."""

    def __init__(self, settings: ClientSettings, clock: Clock, random: Random) -> None:
        self._settings = settings
        self._clock = clock
        self._random = random

    def deadline(self, timeout_ms: int | None = None) -> Deadline:
        """Return a deadline from now on; without a time, the timeout of the settings."""
        return Deadline(self._clock, timeout_ms or self._settings.call_timeout_ms)

    def backoff_ms(self, tries: int) -> float:
        """Return the pause after that many failed tries (1 or more)."""
        first, longest = self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms
        # The exponent is bounded, too: a long outage means thousands of tries.
        pause = min(longest, first * 2 ** min(tries - 1, 20))
        return self._random.jitter(max(first, pause))

    async def run(
        self,
        what: str,
        deadline: Deadline,
        attempt: Callable[[], Awaitable[T]],
        on_error: Callable[[Error], None] | None = None,
    ) -> T:
        """Call `attempt` until it succeeds, fails permanently, or the deadline expires.

        Args:
            what: the action, for the message.
            deadline: when to give up.
            attempt: one try; it is cancelled at the deadline.
            on_error: called with each error that will be retried.

        Raises:
            Unavailable: the deadline expired; the cause is the last error.
            Error: an error of `attempt` that is not retriable.
        """
        tries, last = 0, None
        while True:
            tries += 1
            try:
                async with asyncio.timeout(deadline.cap(deadline.timeout_ms) / 1000):
                    return await attempt()
            except TimeoutError:
                raise _gave_up(what, deadline, tries, last) from last
            except Error as error:
                if not may_retry(error):
                    raise
                last = error
            if on_error is not None:
                on_error(last)
            pause = self.backoff_ms(tries)
            if pause >= deadline.left_ms:
                raise _gave_up(what, deadline, tries, last) from last
            await asyncio.sleep(pause / 1000)


def _gave_up(what: str, deadline: Deadline, tries: int, last: Error | None) -> Unavailable:
    times = "one try" if tries == 1 else f"{tries} tries"
    why = f"the last error: {last}" if last else "no answer came"
    return Unavailable(f"{what}: gave up after {deadline.timeout_ms} ms and {times}; {why}")
