"""Has the cluster decide on an administrator's changes: events in, outcomes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rookery.broker.call import Call
from rookery.cluster.proposal import divide
from rookery.cluster.state.state import Outcome
from rookery.errors import ErrorCode
from rookery.wire.message import Message

_DEFAULT_TIMEOUT_MS: Final = 60_000

TIMED_OUT: Final = Outcome(ErrorCode.REQUEST_TIMED_OUT)


async def decide(call: Call, events: Sequence[Message], timeout_ms: int = 0) -> list[Outcome]:
    """Return what became of each event; of those not known in time, REQUEST_TIMED_OUT.

    Raises:
        Error: the cluster's log is out of reach, or this broker is fenced.
    """
    outcomes: list[Outcome] = []
    clock = call.services.clock
    ends_ms = clock.monotonic_ms() + (timeout_ms if timeout_ms > 0 else _DEFAULT_TIMEOUT_MS)
    # One part after the other: an entry takes what waits together, and others wait too.
    for part in divide(events):
        future = call.services.replica.propose(part)
        # Not cancelled when time is up: what is proposed may well happen.
        await asyncio.wait([future], timeout=max(ends_ms - clock.monotonic_ms(), 0) / 1000)
        if not future.done():
            return outcomes + [TIMED_OUT] * (len(events) - len(outcomes))
        outcomes += future.result()
    return outcomes
