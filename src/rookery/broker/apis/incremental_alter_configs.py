"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from settings (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.config.alteration import alter
from rookery.broker.config.configkeys import BROKER_KEYS, TOPIC_KEYS, ConfigKind, split
from rookery.broker.config.configs import invalid
from rookery.cluster.resources import BROKER_RESOURCE, TOPIC_RESOURCE
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Change(IntEnum):
    """The operation on a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_CHANGES: Final = frozenset(Change)


@handles(
    INCREMENTAL_ALTER_CONFIGS,
    versions=range(2),
    mutates=True,
)
async def incremental_alter_configs(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change single settings of topics, groups, client metrics, or of all brokers."""
    results = await alter(
        call, request.resources, _change_configs, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.error,
                error_message=result.text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, result in zip(request.resources, results, strict=True)
        ]
    )


def _change_configs(
    resource: AlterConfigsResource, now: Mapping[str, str]
) -> dict[str, str | None]:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a setting is given more than once")
    wanted: dict[str, str | None] = dict(now)
    for config in resource.configs:
        value = _change(resource.resource_type, config, now.get(config.name))
        if value is None:
            wanted.pop(config.name, None)
        else:
            wanted[config.name] = value
    return wanted


def _change(resource_type: int, config: AlterableConfig, now: str | None) -> str | None:
    """Return the new value, or None for the default."""
    if config.config_operation == Change.DELETE:
        return None
    if config.config_operation not in _CHANGES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"there is no operation {config.config_operation}"
        )
    if config.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    if config.config_operation == Change.SET:
        return config.value
    return _change_list(resource_type, config, config.value, now)


def _change_list(resource_type: int, config: AlterableConfig, value: str, now: str | None) -> str:
    operation = Change(config.config_operation)
    keys: Mapping[str, tuple[ConfigKind, str | None]] = (
        {key.name: (key.kind, key.default) for key in TOPIC_KEYS.values()}
        if resource_type == TOPIC_RESOURCE
        else {key.name: (key.kind, key.default) for key in BROKER_KEYS.values()}
        if resource_type == BROKER_RESOURCE
        else {}
    )
    kind, default = keys.get(config.name, (None, None))
    if kind is not ConfigKind.LIST:
        raise invalid(f"Can't {operation.name} to key {config.name} because its type is not LIST.")
    parts = split(default or "" if now is None else now)
    given = split(value)
    if operation is Change.APPEND:
        return ",".join([*parts, *(part for part in given if part not in parts)])
    return ",".join(part for part in parts if part not in given)
