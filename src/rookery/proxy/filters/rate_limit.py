"""Limits the requests and the bytes per second of each client.

As in Kafka (KIP-219), a response is sent at once and names a pause; meanwhile the proxy starts none
of the connection's requests. Each process of the proxy measures its own connections.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from rookery.errors import ConfigError
from rookery.proxy.edits.topicchoice import read_choice
from rookery.proxy.filterapi import (
    FORWARD,
    Filter,
    FilterContext,
    FilterFunction,
    Forward,
    Verdict,
    if_noted,
)
from rookery.security.quotameter import RateMeter
from rookery.wire.message import Api, Message
from rookery.wire.messages.api_versions import API_VERSIONS
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE
from rookery.wire.messages.share_fetch import SHARE_FETCH

_FREE: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
_LARGE: Final = frozenset({FETCH, SHARE_FETCH})
"""The APIs whose responses count; those of others are small."""
_MAX_CLIENTS: Final = 10_000
_MAX_KEY: Final = 249
_KEYS: Final[Mapping[str, Callable[[FilterContext], str]]] = {
    "principal": lambda context: context.principal,
    "client_id": lambda context: context.client_id or "",
    "host": lambda context: context.session.host,
}


class ClientMeters(NamedTuple):
    """What one client uses."""

    requests: RateMeter
    bytes: RateMeter


class RateLimit(Filter):
    """Pauses clients that use too much."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "per": "principal, client_id or host: clients with the same share a limit.",
        "requests": "Requests per second.",
        "bytes": "Bytes of requests and of fetched records per second.",
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._key = _KEYS[read_choice(self.options, "per", _KEYS, "principal")]
        self._requests = _read_rate(self.options, "requests")
        self._bytes = _read_rate(self.options, "bytes")
        if self._requests is None and self._bytes is None:
            raise ConfigError("set requests or bytes, a number per second")
        self._clients: OrderedDict[str, ClientMeters] = OrderedDict()

    @property
    def clients(self) -> int:
        """The number of clients that are measured."""
        return len(self._clients)

    def functions(self, kind: str, api: Api[Any, Any]) -> list[FilterFunction]:
        """Return the methods for every API but those that a login needs."""
        if api in _FREE:
            return []
        return [self.measure if kind == "request" else self.throttle]

    def measure(self, context: FilterContext, request: Message) -> Verdict:
        """Measure a request, and pause its client if that is too much."""
        pause_ms = self._record(context, 1, context.request_size)
        if pause_ms:
            context.mute(pause_ms)
        if pause_ms or (self._bytes is not None and context.api in _LARGE):
            context.notes[self] = pause_ms
        return FORWARD

    @if_noted
    def throttle(self, context: FilterContext, response: Message) -> Verdict:
        """Measure what was fetched, and tell the client how long it is paused."""
        pause_ms: int = context.notes[self]
        if self._bytes is not None and context.api in _LARGE:
            pause_ms = max(pause_ms, self._record(context, 0, context.response_size))
            if pause_ms:
                context.mute(pause_ms)
        if not pause_ms or "throttle_time_ms" not in response.__fields__:
            return FORWARD
        stated: Any = response
        stated.throttle_time_ms = max(stated.throttle_time_ms, pause_ms)
        return Forward(response)

    def _record(self, context: FilterContext, requests: int, size: int) -> int:
        """Record what a client uses; return for how many milliseconds it must pause."""
        meters = self._meters(self._key(context)[:_MAX_KEY])
        now_ms = context.clock.monotonic_ms()
        pause_ms = 0
        if self._requests is not None and requests:
            pause_ms = meters.requests.record(requests, now_ms, self._requests)
        if self._bytes is not None:
            pause_ms = max(pause_ms, meters.bytes.record(size, now_ms, self._bytes))
        return pause_ms

    def _meters(self, key: str) -> ClientMeters:
        """Return the meters of a client; those of the one seen longest ago make room."""
        meters = self._clients.get(key)
        if meters is not None:
            self._clients.move_to_end(key)
            return meters
        if len(self._clients) >= _MAX_CLIENTS:
            self._clients.popitem(last=False)
        meters = self._clients[key] = ClientMeters(RateMeter(), RateMeter())
        return meters


def _read_rate(options: Mapping[str, Any], option: str) -> float | None:
    value = options.get(option)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(f"{option}: must be a number above 0")
    return float(value)
