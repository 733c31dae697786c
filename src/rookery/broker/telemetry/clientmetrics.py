"""Client metrics subscriptions (KIP-714): their settings, and which clients they match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rookery.broker.call import Call
from rookery.broker.config.configkeys import ConfigKey, ConfigKind, split
from rookery.cluster.resources import CLIENT_METRICS_RESOURCE, list_configured, resource_key
from rookery.cluster.state.state import State
from rookery.errors import ApiError, ErrorCode
from rookery.model.uuid import uuid_text
from rookery.records.crc import checksum
from rookery.service.namepattern import NamePattern

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
_METRICS, _INTERVAL, _MATCH = "metrics", "interval.ms", "match"
_LEAST_MS, _MOST_MS = 100, 3_600_000
_MAX_SUBSCRIPTIONS: Final = 1000

KEYS: Final = {
    key.name: key
    for key in (
        ConfigKey(
            _INTERVAL, ConfigKind.INT, str(DEFAULT_INTERVAL_MS), "How often clients push metrics."
        ),
        ConfigKey(_MATCH, ConfigKind.LIST, "", "Patterns that a client's properties must match."),
        ConfigKey(_METRICS, ConfigKind.LIST, "", "Prefixes of the metrics' names; * for all."),
    )
}
PROPERTIES: Final = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version",
    "client_source_address", "client_source_port",
)  # fmt: skip
"""The client properties that patterns can match."""

Client = Mapping[str, str]
"""The properties of a client."""


class WantedMetrics(NamedTuple):
    """The metrics and the push interval requested from one client."""

    metrics: list[str]
    interval_ms: int

    def subscription_id(self, instance_id: bytes) -> int:
        """Return a number that is equal on all brokers and changes with the subscription."""
        text = f"{','.join(self.metrics)};{self.interval_ms};".encode() + instance_id
        number = checksum(text, 0)
        return number - (1 << 32) if number >> 31 else number


def subscriptions(state: State) -> dict[str, dict[str, str]]:
    """Return the settings of all subscriptions by name."""
    configs = state.broker_configs
    return {
        name: configs[resource_key(CLIENT_METRICS_RESOURCE, name)]
        for name in list_configured(configs, CLIENT_METRICS_RESOURCE)
    }


def properties_of(call: Call, instance_id: bytes) -> Client:
    """Return the properties of the calling client."""
    session = call.connection.session
    peer = call.connection.transport_info("peername")
    host, port = peer[:2] if isinstance(peer, tuple) else ("", "")
    values = (
        uuid_text(instance_id),
        call.header.client_id or "",
        session.software_name,
        session.software_version,
        host,
        str(port),
    )
    return dict(zip(PROPERTIES, values, strict=True))


def find_wanted(state: State, client: Client) -> WantedMetrics:
    """Return the union of all subscriptions that match a client."""
    metrics: set[str] = set()
    interval_ms = DEFAULT_INTERVAL_MS
    for configs in subscriptions(state).values():
        names = split(configs.get(_METRICS, ""))
        if names and _matches(configs, client):
            metrics.update(names)
            interval_ms = min(interval_ms, int(configs.get(_INTERVAL, DEFAULT_INTERVAL_MS)))
    return WantedMetrics([ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics), interval_ms)


def _matches(configs: Mapping[str, str], client: Client) -> bool:
    try:
        patterns = _patterns(configs.get(_MATCH, ""))
    except ApiError:
        return False  # stored by a release that supported other patterns
    return all(pattern.matches(client.get(name, "")) for name, pattern in patterns)


def check_room(state: State, name: str) -> None:
    """Refuse a new subscription if the maximum number is reached.

    Raises:
        ApiError: POLICY_VIOLATION.
    """
    known = subscriptions(state)
    if name not in known and len(known) >= _MAX_SUBSCRIPTIONS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"there are {_MAX_SUBSCRIPTIONS} subscriptions already"
        )


def check(values: Mapping[str, str | None]) -> dict[str, str]:
    """Validate the settings of a subscription and return them.

    Raises:
        ApiError: with Kafka's error code and message.
    """
    checked: dict[str, str] = {}
    for name, value in values.items():
        if name not in KEYS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}"
            )
        checked[name] = (value or "").strip()
    if _INTERVAL in checked:
        _check_interval(checked[_INTERVAL])
    _patterns(checked.get(_MATCH, ""))
    return checked


def _check_interval(text: str) -> None:
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text) or abs(int(text)) >= 1 << 31:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text[:200]} for configuration {_INTERVAL}: Not a number of type INT",
        )
    if not _LEAST_MS <= int(text) <= _MOST_MS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {text} for {_INTERVAL}, interval must be between {_LEAST_MS} and "
            f"{_MOST_MS} (1 hour)",
        )


def _patterns(text: str) -> Iterable[tuple[str, NamePattern]]:
    return [_pattern(part) for part in split(text)]


def _pattern(part: str) -> tuple[str, NamePattern]:
    name, equals, pattern = (piece.strip() for piece in part.partition("="))
    illegal = ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {part[:200]}")
    if not equals or "=" in pattern or name not in PROPERTIES:
        raise illegal
    try:
        return name, NamePattern(pattern)
    except ApiError:
        raise illegal from None
