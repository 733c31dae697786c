"""Reads and changes the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from rookery.client.connect.connections import Link
from rookery.client.connect.retry import PersistentError
from rookery.client.connect.router import Router
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from rookery.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

T = TypeVar("T")


class ResourceType(IntEnum):
    """The kinds of resources with settings; the numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """The operation to apply to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# The sources of values that were set at run time: not the broker's file (4), and not built in (5).
_SET_BY_HAND: Final = frozenset({1, 2, 3, 6, 7, 8})


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """The effective value of a setting."""

    name: str
    value: str | None
    """None if it is sensitive."""
    source: int
    """1 the topic, 2 the broker, 3 all brokers, 4 the broker's file, 5 built in; -1 unknown."""
    is_read_only: bool
    is_sensitive: bool

    @property
    def is_own(self) -> bool:
        """Whether it was set at run time, rather than being a default."""
        return self.source in _SET_BY_HAND


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of a setting other than a new value."""

    operation: ConfigOperation
    value: str | None = None


class Configs:
    """Reads and changes settings; topics and groups through any broker, a broker's directly."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(
        self, kind: ResourceType, name: str, timeout_ms: int | None = None
    ) -> dict[str, ConfigEntry]:
        """Return all settings of a topic (by name) or a broker (by id, as text).

        Raises:
            ApiError: the resource does not exist, or access to it is denied.
        """
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name)

        async def ask(link: Link, request_ms: int) -> dict[str, ConfigEntry]:
            version = link.versions.choose(DESCRIBE_CONFIGS)
            request = DescribeConfigsRequest(resources=[resource])
            answer = await link.call(DESCRIBE_CONFIGS, version, request, request_ms)
            row = answer.results[0]
            _check(row.error_code, f"read configs of {kind.name} {name!r}", row.error_message)
            return {entry.name: _entry(entry) for entry in row.configs}

        return await self._ask("read", kind, name, ask, timeout_ms)

    async def alter(
        self,
        kind: ResourceType,
        name: str,
        changes: Mapping[str, str | ConfigChange | None],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Change the given settings and keep the others.

        Args:
            kind: the kind of resource.
            name: the topic's name, or the broker's id as text (empty: all brokers).
            changes: a new value, None to reset to the default, or a `ConfigChange`.
            validate_only: validate, but change nothing.
            timeout_ms: for the whole call.

        Raises:
            ApiError: for example INVALID_CONFIG; nothing was changed.
        """
        rows = [_change(key, change) for key, change in changes.items()]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)

        async def ask(link: Link, request_ms: int) -> None:
            version = link.versions.choose(INCREMENTAL_ALTER_CONFIGS)
            request = IncrementalAlterConfigsRequest(
                resources=[resource], validate_only=validate_only
            )
            answer = await link.call(INCREMENTAL_ALTER_CONFIGS, version, request, request_ms)
            row = answer.responses[0]
            _check(row.error_code, f"change configs of {kind.name} {name!r}", row.error_message)

        await self._ask("change", kind, name, ask, timeout_ms)

    async def _ask(
        self,
        verb: str,
        kind: ResourceType,
        name: str,
        ask: Callable[[Link, int], Awaitable[T]],
        timeout_ms: int | None,
    ) -> T:
        deadline = self._router.retrier.deadline(timeout_ms)
        what = f"{verb} configs of {kind.name} {name!r}"
        if kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER} and name:
            return await self._router.ask_node(what, _broker_id(name), ask, deadline)
        return await self._router.ask_controller(what, ask, deadline)


def _broker_id(name: str) -> int:
    if not name.isdecimal():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a broker's name is its id, not {name!r}")
    return int(name)


def _check(code: ErrorCode, what: str, message: str | None) -> None:
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise PersistentError(code, f"{what}: there is no such topic")
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {message or code.sentence}")


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(row.name, row.value, row.config_source, row.read_only, row.is_sensitive)


def _change(name: str, change: str | ConfigChange | None) -> AlterableConfig:
    if change is None:
        change = ConfigChange(ConfigOperation.DELETE)
    elif isinstance(change, str):
        change = ConfigChange(ConfigOperation.SET, change)
    return AlterableConfig(name=name, config_operation=change.operation, value=change.value)
