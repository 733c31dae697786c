"""The life cycle of a client connection as one table: no I/O, no loop, no clock.

    NEW ──CONNECT──► HANDSHAKE ──ADMIT──► OPEN ──END──► HALF_CLOSED
                         │                 │                 │
                         └──────DRAIN──────┴────────┬────────┘
                                                    ▼
                                                DRAINING ──CLOSE──► CLOSING ──LOST──► CLOSED

A connection reads and starts requests only while it has no hold. Holds are added and removed in
any stage (`ConnectionHold`). A hold never delays responses, and never keeps a draining connection
open.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntFlag
from typing import Final, NamedTuple

from rookery.net.settings import ConnectionSettings


class ConnectionStage(Enum):
    """The stage of a connection's life cycle."""

    NEW = "new"
    """There is no transport yet."""
    HANDSHAKE = "handshake"
    """The client has not sent its first request, or has not authenticated."""
    OPEN = "open"
    """Requests are read, started and answered."""
    HALF_CLOSED = "half-closed"
    """The client has closed its sending side. Requests that arrived before are still answered."""
    DRAINING = "draining"
    """No more requests are started; those in flight are answered."""
    CLOSING = "closing"
    """The transport is closing."""
    CLOSED = "closed"
    """The transport is gone."""


class ConnectionEvent(Enum):
    """An event of a connection."""

    CONNECT = "connect"
    """There is a transport."""
    ADMIT = "admit"
    """The handshake is complete: by the first request, or by authentication where required."""
    END = "end"
    """The client closed its sending side."""
    DRAIN = "drain"
    """We close in an orderly way, or a request failed."""
    CLOSE = "close"
    """We close the transport, after everything was sent or at once."""
    LOST = "lost"
    """The transport is gone, or there never was one."""
    PEER_STOPS = "peer stops"
    """The client does not read its responses."""
    PEER_READS = "peer reads"
    """The client reads its responses again."""
    YIELD = "yield"
    """The connection has used up its turn of the event loop."""
    TURN = "turn"
    """The next turn begins."""
    PAUSE = "pause"
    """The owner pauses this client."""
    RESUME = "resume"
    """The owner takes requests again."""
    MUTE = "mute"
    """The client is throttled."""
    UNMUTE = "unmute"
    """The time of throttling is over."""


class ConnectionHold(IntFlag):
    """Why an otherwise healthy connection does not read or start requests."""

    NONE = 0
    UNREAD = 1
    """The client does not read pending responses."""
    TURN_OVER = 2
    """It is the turn of other connections."""
    PAUSED = 4
    """`pause` was called, and `resume` was not."""
    MUTED = 8
    """`mute` was called, and its time is not over."""


_N, _H, _O, _E, _D, _C, _X = ConnectionStage
# The event cannot happen in this stage.
__: Final = None


class _Row(NamedTuple):
    """The stage that follows each stage, and the holds that an event adds and removes."""

    stages: tuple[ConnectionStage | None, ...]
    adds: ConnectionHold = ConnectionHold.NONE
    removes: ConnectionHold = ConnectionHold.NONE


# Events that add or remove a hold do not change the stage.
_SAME: Final = (__, _H, _O, _E, _D, _C, _X)

# fmt: off
TRANSITIONS: Final[Mapping[ConnectionEvent, _Row]] = {
    #                               NEW HAND- OPEN HALF- DRAIN- CLOS- CLOSED
    #                                   SHAKE     CLOSED   ING    ING
    ConnectionEvent.CONNECT:  _Row((_H,  __,  __,   __,    __,    __,   __)),
    ConnectionEvent.ADMIT:    _Row((__,  _O,  _O,   _E,    _D,    _C,   _X)),
    ConnectionEvent.END:      _Row((__,  _E,  _E,   _E,    _D,    _C,   _X)),
    ConnectionEvent.DRAIN:    _Row((__,  _D,  _D,   _D,    _D,    _C,   _X)),
    ConnectionEvent.CLOSE:    _Row((__,  _C,  _C,   _C,    _C,    _C,   _X)),
    ConnectionEvent.LOST:     _Row((_X,  _X,  _X,   _X,    _X,    _X,   __)),
    ConnectionEvent.PEER_STOPS: _Row(_SAME, adds=ConnectionHold.UNREAD),
    ConnectionEvent.PEER_READS: _Row(_SAME, removes=ConnectionHold.UNREAD),
    ConnectionEvent.YIELD:      _Row(_SAME, adds=ConnectionHold.TURN_OVER),
    ConnectionEvent.TURN:       _Row(_SAME, removes=ConnectionHold.TURN_OVER),
    ConnectionEvent.PAUSE:      _Row(_SAME, adds=ConnectionHold.PAUSED),
    ConnectionEvent.RESUME:     _Row(_SAME, removes=ConnectionHold.PAUSED),
    ConnectionEvent.MUTE:       _Row(_SAME, adds=ConnectionHold.MUTED),
    ConnectionEvent.UNMUTE:     _Row(_SAME, removes=ConnectionHold.MUTED),
}
# fmt: on

_FOLLOWING: Final = {
    (stage, event): following
    for event, row in TRANSITIONS.items()
    for stage, following in zip(ConnectionStage, row.stages, strict=True)
}
_READING: Final = frozenset({_H, _O})
_STARTING: Final = frozenset({_H, _O, _E})


class Wait(NamedTuple):
    """An action for which a client has limited time."""

    patience_ms: int
    reason: str
    """Why the connection is closed if it takes longer."""


class ConnectionState:
    """The stage and the holds of one connection, and the resulting permissions."""

    __slots__ = ("can_read", "can_start", "holds", "is_over", "stage")

    def __init__(self) -> None:
        self.stage = ConnectionStage.NEW
        self.holds = ConnectionHold.NONE
        self.can_read = False
        """Whether to read more bytes, within the limits."""
        self.can_start = False
        """Whether arrived requests may be started, within the limits."""
        self.is_over = False
        """Whether to close the transport once all requests are answered and all data is sent."""

    def __repr__(self) -> str:
        holds = [hold.name for hold in ConnectionHold if hold and hold in self.holds]
        return f"<ConnectionState {self.stage.name}{''.join(f' {name}' for name in holds)}>"

    @property
    def is_connected(self) -> bool:
        """Whether there is a transport, so that the loss of it will be reported."""
        return self.stage not in (_N, _X)

    @property
    def is_closing(self) -> bool:
        """Whether no more requests are started, now and later."""
        return self.stage not in _STARTING

    @property
    def is_stuck(self) -> bool:
        """Whether the client leaves its responses unread."""
        return bool(self.holds & ConnectionHold.UNREAD)

    def on(self, event: ConnectionEvent) -> bool:
        """Apply an event; return whether the stage changed.

        Raises:
            RuntimeError: the event cannot happen in this stage.
        """
        before = self.stage
        following = _FOLLOWING[before, event]
        if following is None:
            raise RuntimeError(f"a connection that is {before.value} cannot {event.value}")
        row = TRANSITIONS[event]
        self.stage = following
        self.holds = (self.holds | row.adds) & ~row.removes
        is_free = not self.holds
        self.can_read = is_free and following in _READING
        self.can_start = is_free and following in _STARTING
        # A half-closed connection that is held may have whole requests that were not started.
        self.is_over = following is _D or (following is _E and is_free)
        return following is not before

    def wait(
        self,
        settings: ConnectionSettings,
        *,
        has_requests: bool,
        is_reading: bool,
        has_part: bool,
    ) -> Wait | None:
        """Return the action expected from the client, and its time limit.

        Args:
            settings: the time limits.
            has_requests: whether requests are in flight.
            is_reading: whether the connection currently reads from the client.
            has_part: whether the first bytes of a request have arrived.

        Returns:
            None if the client waits for this server.
        """
        if self.is_closing or self.stage is _E:
            return Wait(settings.linger_ms, "its last responses could not be sent")
        if self.stage is _H:
            return Wait(settings.handshake_timeout_ms, "the handshake was not finished")
        if self.is_stuck:
            return Wait(settings.idle_timeout_ms, "it did not read its responses")
        if has_requests or not is_reading:
            return None
        if has_part:
            return Wait(settings.receive_timeout_ms, "a request did not arrive completely")
        return Wait(settings.idle_timeout_ms, "it sent no request")
