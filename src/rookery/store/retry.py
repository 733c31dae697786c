"""Retries requests to an object store until a deadline.

The client library's own retries are off: the creator of an object must know whether an earlier
attempt may have created it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from obstore.exceptions import BaseError

from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.errors import Unavailable
from rookery.store.address import StoreAddress
from rookery.store.clienterror import BAD_ENDPOINT, is_panic, permanent_reason, summary
from rookery.store.meter import RETRIES
from rookery.store.pendingcalls import note

_FIRST_PAUSE_MS: Final = 50.0
_LONGEST_PAUSE_MS: Final = 5_000.0
# Half to one and a half of the pause, so that clients that failed together do not retry together.
_SPREAD: Final = 0.5

T = TypeVar("T")


class InconclusiveResponse(Exception):  # noqa: N818 (not an error of its own: the request is sent again)
    """The response of the store is inconclusive: retry."""


class StoreRetrier:
    """Makes and retries requests to one store."""

    def __init__(
        self, address: StoreAddress, clock: Clock | None = None, random: Random | None = None
    ) -> None:
        self._name = address.name
        self._patience = address.patience
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()

    async def run(self, kind: str, key: str, attempt: Callable[[int], Awaitable[T]]) -> T:
        """Return the result of the attempt.

        Args:
            kind: the kind of request: a word for the metrics and for the error's text.
            key: the key of the object.
            attempt: makes the request once, within its own timeout. It receives the number of
                failed attempts before it, each of which may have taken effect. Rookery's own errors
                that it raises are final.

        Raises:
            Unavailable: no attempt succeeded before the deadline, access is denied, or the bucket
                does not exist.
        """
        began_ms = self._clock.monotonic_ms()
        pause_ms, tried = _FIRST_PAUSE_MS, 0
        while True:
            try:
                return await attempt(tried)
            except (BaseError, OSError, InconclusiveResponse) as error:  # A time-out is an OSError.
                note(summary(error))
                if (reason := permanent_reason(error)) is not None:
                    raise self._make_error(kind, key, reason, error) from error
                tried += 1
                passed_ms = self._clock.monotonic_ms() - began_ms
                if passed_ms + pause_ms >= self._patience.deadline_ms:
                    times = f"{tried} attempts in {passed_ms} ms failed"
                    raise self._make_error(kind, key, times, error) from error
            except BaseException as error:
                # The client library panics if an endpoint from the environment has no scheme.
                if is_panic(error):
                    raise self._make_error(kind, key, BAD_ENDPOINT, error) from error
                raise
            RETRIES.labels(kind).inc()
            await asyncio.sleep(self._random.jitter(pause_ms, _SPREAD) / 1000)
            pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)

    def _make_error(self, kind: str, key: str, what: str, error: BaseException) -> Unavailable:
        return Unavailable(f"store {self._name}: cannot {kind} {key!r}: {what} ({summary(error)})")
