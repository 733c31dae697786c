"""The states of a client's link and of a connection to a broker, as two tables.

The tables are pure: they decide which event leads to which state. `ClientLink` does the work for
mirror nodes, `NodeLink` and its `Backend`s for broker nodes.
docs/proxy-connections.md draws both tables; it is made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from rookery.wire.codec import API_VERSIONS_KEY
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE


class LinkStage(Enum):
    """The stage of a client's link."""

    STARTUP = "startup"
    """The client has connected and sent no request yet."""
    CLIENT_ACTIVE = "client active"
    """The first request has arrived."""
    AUTHENTICATING = "authenticating"
    """The client logs in, here or at the broker."""
    API_VERSIONS = "api versions"
    """The client knows which versions it may send, and has sent no other request."""
    ROUTING = "routing"
    """Requests and responses pass."""
    DRAINING = "draining"
    """No more requests are taken; those in flight are answered."""
    CLOSED = "closed"
    """Both connections are closed."""


class LinkEvent(Enum):
    """An event of a client's link."""

    ARRIVE = "arrive"
    """The client has sent its first request, of whatever kind."""
    REQUEST = "request"
    """A request other than the two below has arrived."""
    VERSIONS_REQUEST = "versions request"
    """ApiVersions has arrived."""
    LOGIN_REQUEST = "login request"
    """SaslHandshake or SaslAuthenticate has arrived."""
    DRAIN = "drain"
    """The proxy stops or reloads, or the broker has closed its connection."""
    LOST = "lost"
    """The client is gone."""


class BackendStage(Enum):
    """The stage of a connection to a broker."""

    CREATED = "created"
    """Nothing was sent yet; there is no socket."""
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    """The broker could not be reached, or did not keep to the protocol."""
    CLOSED = "closed"


class BackendEvent(Enum):
    """An event of a connection to a broker."""

    CONNECT = "connect"
    """The first request needs the connection."""
    READY = "ready"
    """It is open, and the proxy has logged in if it has to."""
    FAIL = "fail"
    """It cannot be opened, or it ended."""
    CLOSE = "close"
    """The client is gone, or the proxy stops."""


_ENDED: Final = frozenset({BackendStage.FAILED, BackendStage.CLOSED})
_REQUESTS: Final = {
    API_VERSIONS_KEY: LinkEvent.VERSIONS_REQUEST,
    SASL_HANDSHAKE.key: LinkEvent.LOGIN_REQUEST,
    SASL_AUTHENTICATE.key: LinkEvent.LOGIN_REQUEST,
}

_S, _A, _L, _V, _R, _D, _X = LinkStage
_C0, _C1, _C2, _F, _C3 = BackendStage
# The event cannot happen in this stage.
__: Final = None

# fmt: off
LINK_TRANSITIONS: Final[Mapping[LinkEvent, tuple[LinkStage | None, ...]]] = {
    #                           START CLIENT AUTHEN- API      ROUT- DRAIN- CLOSED
    #                           UP    ACTIVE TICATING VERSIONS ING  ING
    LinkEvent.ARRIVE:           (_A,   __,    __,      __,     __,   __,    __),
    LinkEvent.REQUEST:          (__,   _R,    _R,      _R,     _R,   _D,    _X),
    LinkEvent.VERSIONS_REQUEST: (__,   _V,    _L,      _V,     _R,   _D,    _X),
    LinkEvent.LOGIN_REQUEST:    (__,   _L,    _L,      _L,     _R,   _D,    _X),
    LinkEvent.DRAIN:            (_D,   _D,    _D,      _D,     _D,   _D,    _X),
    LinkEvent.LOST:             (_X,   _X,    _X,      _X,     _X,   _X,    _X),
}

BACKEND_TRANSITIONS: Final[Mapping[BackendEvent, tuple[BackendStage | None, ...]]] = {
    #                       CREATED CONNECTING CONNECTED FAILED CLOSED
    BackendEvent.CONNECT:   (_C1,    __,        __,       __,    __),
    BackendEvent.READY:     (__,     _C2,       __,       __,    _C3),
    BackendEvent.FAIL:      (__,     _F,        _F,       _F,    _C3),
    BackendEvent.CLOSE:     (_C3,    _C3,       _C3,      _C3,   _C3),
}
# fmt: on


_LINK_STEPS: Final = {
    (stage, event): following
    for event, row in LINK_TRANSITIONS.items()
    for stage, following in zip(LinkStage, row, strict=True)
}
_BACKEND_STEPS: Final = {
    (stage, event): following
    for event, row in BACKEND_TRANSITIONS.items()
    for stage, following in zip(BackendStage, row, strict=True)
}


class LinkState:
    """The stage of one client's link."""

    __slots__ = ("stage",)

    def __init__(self) -> None:
        self.stage = LinkStage.STARTUP

    def __repr__(self) -> str:
        return f"<LinkState {self.stage.value}>"

    def on(self, event: LinkEvent) -> None:
        """Apply an event of the link.

        Raises:
            RuntimeError: the event cannot happen in this stage.
        """
        following = _LINK_STEPS[self.stage, event]
        if following is None:
            raise RuntimeError(f"a link in the stage {self.stage.value} cannot {event.value}")
        self.stage = following

    def arrive(self) -> None:
        """Note a request of any kind; after the first one, this changes nothing."""
        if self.stage is LinkStage.STARTUP:
            self.on(LinkEvent.ARRIVE)

    def note_request(self, key: int) -> None:
        """Apply the events of a request, by the key of its API."""
        self.arrive()
        self.on(_REQUESTS.get(key, LinkEvent.REQUEST))


class BackendState:
    """The stage of one connection to a broker."""

    __slots__ = ("stage",)

    def __init__(self) -> None:
        self.stage = BackendStage.CREATED

    def __repr__(self) -> str:
        return f"<BackendState {self.stage.value}>"

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended, or could not be opened."""
        return self.stage in _ENDED

    def on(self, event: BackendEvent) -> None:
        """Apply an event of the connection.

        Raises:
            RuntimeError: the event cannot happen in this stage.
        """
        following = _BACKEND_STEPS[self.stage, event]
        if following is None:
            raise RuntimeError(f"a backend that is {self.stage.value} cannot {event.value}")
        self.stage = following
