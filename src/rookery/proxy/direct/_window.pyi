"""Relays runs of whole frames; `windowtwin.py` is the oracle of all but the ends."""

import asyncio
from collections.abc import Callable, Sequence

from rookery.net.connection import Connection
from rookery.net.requestflow import RequestFlow
from rookery.net.requestqueue import RequestQueue
from rookery.net.upstream import Upstream
from rookery.wire.buffer import Buffer
from rookery.wire.frame import FrameSplitter

RuleRow = tuple[int, int, int, int, Sequence[int] | None]
"""Key, version, milliseconds to the deadline, form of the acks, and the steps over a response."""

SpilledRow = tuple[int, int, int, int, float, int]
"""Key, version, number, the client's number, deadline, and milliseconds to it from the start."""

class RelayRules:
    """How each version of each API passes that needs no decoding."""

    def __init__(self, rows: Sequence[RuleRow]) -> None: ...

class RelayWindow:
    """The relayed requests without a response, oldest first."""

    capacity: int
    count: int
    taken: int
    """The frames of the last run."""
    awaited: int
    """The size of the incomplete frame after the last run, its length included; 0 if unknown."""
    is_stopped: bool
    """Whether the last run ended at a frame that is not relayed."""
    earliest: float
    """The earliest deadline of the last run; infinite if nothing in it is answered."""
    number: int
    """The next correlation id."""
    last_seen: float
    """When frames were last relayed, or began to arrive."""
    has_part: bool
    """Whether an incomplete request waits for its rest."""

    def __init__(self, rules: RelayRules, capacity: int) -> None: ...
    def take_requests(self, data: Buffer, at: int, end: int, limit: int, now: float) -> int:
        """Renumber the requests in `data[at:end]`, in place; return the end of the run."""

    def take_answers(self, data: Buffer, at: int, end: int, limit: int) -> int:
        """Give responses the clients' numbers, in place; return the end of the run."""

    def drain(self) -> list[SpilledRow]:
        """Return all requests, and forget them."""

class RelayEnd(asyncio.BufferedProtocol):
    """The receiving side of both ends."""

    def aim(self, target: asyncio.Transport | None, socket: int) -> None:
        """Send runs to a socket; -1 hands all that arrives to the owner."""

class RequestEnd(RelayEnd):
    """The protocol of a client's transport in place of its `Connection`."""

    def __init__(
        self,
        window: RelayWindow,
        owner: Connection,
        splitter: FrameSplitter,
        flow: RequestFlow,
        upstream: Upstream,
        now: Callable[[], float],
    ) -> None: ...

class AnswerEnd(RelayEnd):
    """The protocol of a broker's transport in place of its `Upstream`."""

    def __init__(
        self,
        window: RelayWindow,
        owner: Upstream,
        splitter: FrameSplitter,
        queue: RequestQueue,
        now: Callable[[], float],
    ) -> None: ...
